import { createRoot } from "react-dom/client";

import { Trip } from "./Trip";

import "@copilotkit/react-ui/styles.css";
import "../styles.css";
import "./trip.css";

createRoot(document.getElementById("root")!).render(<Trip />);
