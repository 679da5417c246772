import { runtimeUrl } from "../runtime";

/** The address of what the analyst serves: it names it relative to the runtime. */
export const urlOf = (path: string) => `${runtimeUrl.replace(/\/$/, "")}/${path.replace(/^\//, "")}`;
