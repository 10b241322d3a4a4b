import { defineConfig } from 'vite';

// Everything is served by the binary itself: relative paths, no inlined data, no source maps.
export default defineConfig({
  base: './',
  build: {
    target: 'es2021',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    emptyOutDir: true,
  },
  server: {
    proxy: {
      '/pyroscope': 'http://127.0.0.1:4040',
      '/querier.v1.QuerierService': 'http://127.0.0.1:4040',
    },
  },
});
