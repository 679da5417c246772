import { useAgentContext, useFrontendTool } from "@copilotkit/react-core/v2";
import type { Dispatch, SetStateAction } from "react";
import { z } from "zod";

import { WeatherCard } from "./WeatherCard";
import { type View, forecast, skies } from "./view";

/** What the copilot knows of the page, and what it may do to it. */
export function useTripTools(view: View, setView: Dispatch<SetStateAction<View>>) {
  useAgentContext({
    description: "The destination the page shows",
    value: { city: view.city, sky: view.sky },
  });

  // The handler runs here, in the browser; what it returns goes back to the model. `render` draws
  // the call into the conversation, from its first argument on.
  useFrontendTool({
    name: "showWeather",
    description: "Show the weather in a city.",
    parameters: z.object({ city: z.string().describe("The name of the city") }),
    handler: async ({ city }) => ({ city, ...forecast(city) }),
    render: ({ args, status, result }) => (
      <WeatherCard city={args.city} result={status === "complete" ? result : undefined} />
    ),
  });

  // This one has nothing to draw: it changes the page itself.
  useFrontendTool({
    name: "showDestination",
    description: "Show a destination at the top of the page.",
    parameters: z.object({
      city: z.string().describe("The name of the city"),
      sky: z.enum(skies).optional().describe("What the sky looks like"),
    }),
    handler: async ({ city, sky }) => {
      setView({ city, sky: sky ?? forecast(city).sky });
      return `The page shows ${city}.`;
    },
  });
}
