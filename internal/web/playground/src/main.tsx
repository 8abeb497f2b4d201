import { createRoot } from "react-dom/client";
import { App } from "./app";
import "./workers";
import "@graphiql/react/style.css";
import "@graphiql/plugin-doc-explorer/style.css";
import "@graphiql/plugin-history/style.css";
import "graphiql/graphiql.css";
import "./style.css";

createRoot(document.getElementById("playground")!).render(<App />);
