import { type AbstractAgent, useFrontendTool } from "@copilotkit/react-core/v2";
import { z } from "zod";

const booking = z.object({
  to: z.string().describe("The harbour"),
  name: z.string().describe("Who travels"),
  people: z.number().describe("How many travel"),
  dog: z.boolean().describe("Whether a dog comes along"),
});

/** Lets the agent book; the bookings are read off the conversation, so a reload brings them back. */
export function useBookings(agent: AbstractAgent): string[] {
  useFrontendTool({
    name: "addBooking",
    description: "Add a booking to the page.",
    parameters: booking,
    handler: async () => "Added.",
  });
  return agent.messages
    .flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []))
    .filter((call) => call.function.name === "addBooking")
    .flatMap((call) => describe(call.function.arguments));
}

/** The words for a call; none while its arguments are still coming. */
function describe(text: string): string[] {
  try {
    const { to, name, people, dog } = booking.parse(JSON.parse(text));
    return [`${to}: ${name}, ${people} ${people === 1 ? "person" : "people"}${dog ? ", a dog" : ""}`];
  } catch {
    return [];
  }
}
