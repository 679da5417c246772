import { defineConfig } from "vite";

export default defineConfig({
  esbuild: { jsx: "automatic" },
  server: { proxy: { "/api": "http://127.0.0.1:8000", "/login": "http://127.0.0.1:8000" } },
});
