// GraphiQL keeps its state in localStorage. Whether there is any tells a first
// visit from later ones, on which everything is as the visitor left it.
const TABS = "graphiql:tabState";
// The width of the documentation pane, to the rest as 1: GraphiQL's own default
// of a third leaves little room for a query.
const PANE = "graphiql:docExplorerFlex";

function look(): boolean {
  try {
    if (localStorage.getItem(PANE) === null) localStorage.setItem(PANE, "0.25");
    return localStorage.getItem(TABS) === null;
  } catch {
    return true; // storage is forbidden: each visit is the first one
  }
}

/** Whether this browser shows the Playground for the first time. */
export const isFirstVisit = look();
