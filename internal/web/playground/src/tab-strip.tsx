import { useGraphiQL } from "@graphiql/react";
import { useEffect } from "react";

/**
 * Keeps the row of tabs in reach when there are more than fit: the active tab is
 * scrolled into view, and the wheel moves the row.
 */
export function TabStrip() {
  const active = useGraphiQL((state) => state.activeTabIndex);
  useEffect(() => {
    const tab = document.getElementById(`graphiql-session-tab-${active}`);
    tab?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [active]);
  useEffect(() => {
    const row = document.querySelector(".graphiql-tabs");
    const scroll = (event: Event) => {
      const { deltaX, deltaY } = event as WheelEvent;
      row!.scrollLeft += deltaX || deltaY;
    };
    row?.addEventListener("wheel", scroll, { passive: true });
    return () => row?.removeEventListener("wheel", scroll);
  }, []);
  return null;
}
