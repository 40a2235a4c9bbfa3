//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/catcher"
	"github.com/posthaste-mq/posthaste/internal/history"
)

// shippedLease is the lease of the shipped program's workers and relays, which cannot be
// configured.
const shippedLease = 10 * time.Second

// Why a shipped process's attempt failed, as its peer sees it.
var (
	errRefused     = errors.New("the broker refused it")
	errUnconfirmed = errors.New("the connection ended before the confirm")
	errUnanswered  = errors.New("the connection ended before the answer")
)

// shippedCommand returns a process of the shipped program for a store's URL. after is called
// when it has ended. The caller holds the rig's mutex.
func (r *rig) shippedCommand(role, name, url string) (cmd *exec.Cmd, after func(), err error) {
	ctx := context.Background() // it ends by signals
	switch role {
	case roleMailWorker:
		p, err := r.openMailServer(name)
		if err != nil {
			return nil, nil, err
		}
		r.mailServers[name] = p
		after = func() {
			r.mu.Lock()
			delete(r.mailServers, name)
			r.mu.Unlock()
			p.close()
		}
		return r.program(ctx, url, "worker", "--queue", Mails, "--concurrency", strconv.Itoa(concurrency), "--smtp-url", "smtp://"+p.server.Addr()+"?tls=none"), after, nil
	case roleRelay:
		if r.heard[name], err = history.Open(r.Dir, name); err != nil {
			return nil, nil, err
		}
		address, err := r.broker.proxy.open(name)
		if err != nil {
			return nil, nil, err
		}
		return r.program(ctx, url, "relay", "--queue", Relayed, "--broker", "amqp://guest:guest@"+address+"/",
			"--set", "batch="+strconv.Itoa(concurrency), "--set", "concurrency=2",
			"--set", "headers."+headerID+"={{.MessageID}}", "--set", "headers."+headerAttempt+"={{.Attempt}}"), func() { r.broker.proxy.forget(name) }, nil
	default:
		return r.program(ctx, url, "serve", "--listen", r.api), func() {}, nil
	}
}

// registered returns the name under which a worker is registered.
func (p *running) registered() string {
	if p.role == roleWorker {
		return p.name
	}
	host, _ := os.Hostname()
	return fmt.Sprintf("%s/%d", host, p.cmd.Process.Pid)
}

// mailServer is the mail server of one shipped worker. It writes the worker's history from the
// mails that it gets, because the worker writes none itself.
type mailServer struct {
	server *catcher.Catcher
	r      *history.Recorder
	mu     sync.RWMutex // held while a mail is recorded
	closed bool
}

func (r *rig) openMailServer(process string) (p *mailServer, err error) {
	p = &mailServer{}
	if p.r, err = history.Open(r.Dir, process); err != nil {
		return nil, err
	}
	p.server, err = catcher.Start(catcher.Config{MaxMails: 1, Kept: p.kept})
	return p, err
}

// kept records a mail. It waits before the answer, so that the worker can be killed in
// between.
func (p *mailServer) kept(m catcher.Mail, success bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return
	}
	s, whole := arrived(p.r, history.Event{ID: mailID(m.MessageID)}, []byte(m.Text))
	if !whole {
		return
	}
	came(p.r, []byte(m.Text))
	time.Sleep(work(s.content, false))
	var err error
	if !success {
		err = errUnanswered
	}
	s.left(p.r, err)
}

func (p *mailServer) close() {
	_ = p.server.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	_ = p.r.Close()
}

// mailID returns the message that a Message-ID names, or 0.
func mailID(header string) posthaste.MessageID {
	text, _, _ := strings.Cut(strings.TrimPrefix(header, "<posthaste."), ".")
	id, _ := strconv.ParseInt(text, 10, 64)
	return posthaste.MessageID(id)
}

// mailFault makes every mail server fail for a few mails.
func (r *rig) mailFault(kind Fault, f catcher.Fault) func(context.Context) error {
	f.Stage, f.Times = catcher.StageEnd, 1+r.random.IntN(8)
	return func(ctx context.Context) error {
		return r.during(kind, "", func() (struck int, err error) {
			r.mu.Lock()
			var at []*catcher.Injected
			for _, p := range r.mailServers {
				at = append(at, p.server.Inject(f))
			}
			r.mu.Unlock()
			for end := time.Now().Add(3 * time.Second); time.Now().Before(end) && ctx.Err() == nil; hold(ctx, 10*time.Millisecond) {
				struck = 0
				for _, in := range at {
					struck += in.Hits()
				}
				if struck == len(at)*f.Times {
					break
				}
			}
			for _, in := range at {
				in.Remove()
			}
			return struck, nil
		})
	}
}
