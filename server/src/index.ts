export { type Config, ConfigError, defaultConfig, readConfig, SETTINGS } from "./config.js";
export { type Server, type ServerOptions, startServer } from "./server.js";
