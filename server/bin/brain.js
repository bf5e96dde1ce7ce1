#!/usr/bin/env node
// Here, and not in dist, so that installing the workspace can link the command before anything is built.
import "../dist/main.js";
