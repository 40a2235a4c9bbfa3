// Package login knows the user and password of URLs.
package login

import "strings"

// Misread reports whether the user and password of a URL are not percent-encoded, so
// that a part of them passes for its host, port, path or options. Nothing that was read
// of such a URL may be told.
func Misread(url string) bool {
	_, rest, _ := strings.Cut(url, "://")
	return strings.ContainsAny(rest[:strings.LastIndexByte(rest, '@')+1], "/?#")
}
