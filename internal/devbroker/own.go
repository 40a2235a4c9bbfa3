//go:build unix

package devbroker

import "context"

// Test is what [Own] needs of a testing.TB. Package testing would be linked into the program.
type Test interface {
	Helper()
	Fatal(args ...any)
	Cleanup(f func())
	Context() context.Context
	TempDir() string
}

// Own starts a broker of the test's own, and stops it when the test ends. start is a function
// such as [StartRedis], which gets the further settings.
func Own[B interface{ Stop() }](t Test, start func(ctx context.Context, dir string, further ...string) (B, error), further ...string) B {
	t.Helper()
	b, err := start(t.Context(), t.TempDir(), further...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	return b
}
