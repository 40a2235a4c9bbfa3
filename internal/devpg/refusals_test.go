//go:build unix

package devpg

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
)

func TestSecondStartIsRefused(t *testing.T) {
	t.Parallel()
	c := Config{DataDir: dir(t)}
	s := start(t, c)
	_, err := Start(t.Context(), c)
	if posthaste.CodeOf(err) != posthaste.CodeConflict || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("the second start: %v", err)
	}
	if err := Remove(t.Context(), c.DataDir); posthaste.CodeOf(err) != posthaste.CodeConflict {
		t.Errorf("removing it in use: %v", err)
	}
	if ask(t, s.URL(), "select 1::text") != "1" {
		t.Error("the first was harmed")
	}
	_, o := startOwner(t, Config{DataDir: dir(t)}, nil)
	_, err = Start(t.Context(), Config{DataDir: filepath.Dir(o.DataDir)})
	if posthaste.CodeOf(err) != posthaste.CodeConflict {
		t.Errorf("a start beside another process: %v", err)
	}
}

func TestPortThatIsTaken(t *testing.T) {
	t.Parallel()
	// A port outside the range that the system gives to those who ask for any, so that it stays free.
	var l net.Listener
	port, err := 0, errors.New("not tried")
	for tries := 0; err != nil; tries++ {
		if tries == 100 {
			t.Fatal(err)
		}
		port = 20000 + rand.IntN(10000)
		l, err = net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	defer l.Close()
	c := Config{DataDir: dir(t), Port: port}
	_, err = Start(t.Context(), c)
	if posthaste.CodeOf(err) != posthaste.CodeConflict || !strings.Contains(err.Error(), strconv.Itoa(port)) {
		t.Fatalf("got: %v", err)
	}
	l.Close()
	if s := start(t, c); s.Port() != port {
		t.Errorf("port %d, want %d", s.Port(), port)
	}
}

func TestWrongConfig(t *testing.T) {
	t.Parallel()
	data := dir(t)
	for field, c := range map[string]Config{
		"data_dir": {},
		"port":     {DataDir: data, Port: 70000},
		"version":  {DataDir: data, Version: "9"},
		"bin_dir":  {DataDir: data, BinDir: data},
	} {
		_, err := Start(t.Context(), c)
		var e *posthaste.Error
		if !asError(err, &e) || e.Code != posthaste.CodeInvalid || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	s := start(t, Config{DataDir: data, Version: "14"})
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Config{DataDir: data, Version: "18"}); posthaste.CodeOf(err) != posthaste.CodeConflict {
		t.Errorf("a cluster of 14 started by 18: %v", err)
	}
	if again := start(t, Config{DataDir: data}); again.binaries.major() != "14" {
		t.Errorf("without a version, the cluster of 14 was started by %s", again.Version())
	}
	if _, err := Start(t.Context(), Config{DataDir: dir(t), Settings: map[string]string{"no_such_setting": "1"}}); posthaste.CodeOf(err) != posthaste.CodeUnavailable {
		t.Errorf("an unknown setting: %v", err)
	}
}
