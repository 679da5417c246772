import { defineConfig } from "vite";

export default defineConfig({
  base: "./", // the built page works below any path
  esbuild: { jsx: "automatic" },
  server: {
    // in development the page comes from Vite, everything the copilot says from Python
    proxy: { "/graphql": "http://localhost:8000" },
  },
  build: {
    chunkSizeWarningLimit: 4000,
    rollupOptions: {
      input: ["index.html", "trip.html"],
      onwarn(warning, warn) {
        // "use client" means nothing here, and every CopilotKit file says it
        if (warning.code !== "MODULE_LEVEL_DIRECTIVE") warn(warning);
      },
    },
  },
});
