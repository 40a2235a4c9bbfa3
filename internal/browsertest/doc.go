// Package browsertest tests the dashboard in a real browser, headless Chromium, on a real store:
// that an operator finds and replays a failed message with a mouse or with the keyboard alone, that no text of senders runs
// as a script, and that the pages are accessible and fit narrow screens. Its tests also write
// screenshots of all pages to dist/screenshots, and the one that the README shows.
package browsertest
