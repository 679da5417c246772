import { defineConfig } from "vite";

export default defineConfig({
  base: "./", // the built page works below any path
  esbuild: { jsx: "automatic" },
  build: {
    chunkSizeWarningLimit: 8000, // CopilotKit draws Markdown, code, formulas and diagrams
    rollupOptions: {
      onwarn(warning, warn) {
        // "use client" means nothing here, and many files say it
        if (warning.code !== "MODULE_LEVEL_DIRECTIVE") warn(warning);
      },
    },
  },
});
