#!/usr/bin/env -S node --max-semi-space-size=32
// Here, and not in dist, so that installing the workspace can link the command before anything is built.
// The flag: a call's garbage is short-lived, and a larger nursery halves what collecting it costs.
import "../dist/main.js";
