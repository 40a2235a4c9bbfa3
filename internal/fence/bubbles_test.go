package fence

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// sleeping is a test file. Each of its sleeps that counts says so.
const sleeping = `package a

type fake struct{ wait func() } // only made in bubbles

func (f *fake) Claim() { time.Sleep(1); f.inner() }
func (f *fake) inner() { time.Sleep(1) }

type made struct{}

func (made) Claim() { time.Sleep(1) } // counts: TestOutside makes one

func (*Product) Wait() { time.Sleep(1) } // counts: its type is not of a test

type never struct{}

func (never) Claim() { time.Sleep(1) } // counts

func inBubble(t *testing.T, test func(f *fake)) {
	time.Sleep(1) // counts
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(1)
		test(&fake{wait: func() { time.Sleep(1) }})
	})
}

func passed(t *testing.T, test func(t *testing.T)) { synctest.Test(t, test) }

func both(test func()) {
	test()
	synctest.Test(nil, func(*testing.T) { test() })
}

func helper(n int) {
	if n > 0 {
		helper(n - 1)
	}
	time.Sleep(1)
	deeper()
}

func deeper() { time.Sleep(1) }

func shared() { time.Sleep(1) } // counts: TestOutside calls it

func unused() { time.Sleep(1) } // counts

func Exported() { time.Sleep(1) } // counts: others can call it

func named(t *testing.T) { time.Sleep(1) }

func TestInside(t *testing.T) {
	inBubble(t, func(f *fake) {
		go func() { time.Sleep(1) }()
		helper(2)
		shared()
		_ = made{}
		_ = Product{}
	})
	passed(t, func(t *testing.T) { time.Sleep(1) })
	passed(t, named)
	synctest.Test(t, func(t *testing.T) { Exported() })
}

func TestOutside(t *testing.T) {
	shared()
	_ = new(made)
	both(func() { time.Sleep(1) }) // counts
	t.Run("x", func(t *testing.T) { time.Sleep(1) }) // counts
	other.Test(t, func(t *testing.T) { time.Sleep(1) }) // counts
}
`

// Sleeps in bubbles do not count.
func TestSleepsInBubbles(t *testing.T) {
	t.Parallel()
	found, err := count(fstest.MapFS{
		"a/a_test.go": {Data: []byte(sleeping)},
		"a/support.go": {Data: []byte("package a\nimport \"testing\"\n" +
			"func Run(t *testing.T) { synctest.Test(t, func(*testing.T) { time.Sleep(1) }) }\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`^a/a_test.go:(\d+):\d+$`)
	counted := map[string]int{}
	for _, sleep := range found["a"].sleeps {
		if at := line.FindStringSubmatch(sleep); at != nil {
			counted[at[1]]++
		}
	}
	for i, text := range strings.Split(sleeping, "\n") {
		want := 0
		if strings.Contains(text, "// counts") {
			want = 1
		}
		if n := counted[strconv.Itoa(i+1)]; n != want {
			t.Errorf("line %d counts %d times, want %d: %s", i+1, n, want, text)
		}
	}
}
