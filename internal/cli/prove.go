//go:build unix

package cli

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/internal/prove"
	"github.com/posthaste-mq/posthaste/postgres"
)

// proveFlags are the flags of prove.
type proveFlags struct {
	duration    time.Duration
	data        string
	keep        bool
	seed        int
	rate        float64
	workers     int
	postgresBin string
}

func newProve(a *app) *cobra.Command {
	p := proveFlags{duration: 2 * time.Minute}
	cmd := &cobra.Command{
		Use: "prove", Short: "Kill workers and PostgreSQL on this machine, and account for every message",
		Long: `Start an embedded PostgreSQL, senders and workers as processes of their own, kill
them one after the other with SIGKILL, and account for every message: which were
acknowledged, handled, lost, handled twice and why.

The account does not use the records of the queue. Each process appends the answers to
its sends and the messages it handled to its own file, which it syncs to disk before it
goes on. A checker compares these files. Duplicates are allowed if a kill explains them.

Ctrl-C ends the run early and still accounts. A second one ends it at once, stops
PostgreSQL and leaves the directory with the files behind. The exit code is 1 if a
message was lost, was handled twice without a kill that explains it, or was delivered
although it was never sent. The seed selects the kills; the messages in flight then
differ between runs.`,
		Example: "  posthaste prove --duration 2m\n  posthaste prove --duration 30s --rate 500 --workers 5 --json",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("seed") {
				p.seed = rand.IntN(1 << 30)
			}
			return p.run(cmd.Context(), a)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.Var(duration{&p.duration}, "duration", "how long to send and kill, 10s to 24h (default 2m); the queue drains afterwards")
	flags.Lookup("duration").DefValue = ""
	flags.Float64Var(&p.rate, "rate", 200, "messages per second, 1 to 10000")
	flags.IntVar(&p.workers, "workers", 3, "number of worker processes, 1 to 20")
	flags.IntVar(&p.seed, "seed", 0, "selects the kills and their times (default: random)")
	flags.StringVar(&p.data, "data", "", "directory for the database and the histories, which must be empty (default: a temporary one)")
	flags.BoolVar(&p.keep, "keep", false, "keep that directory")
	flags.StringVar(&p.postgresBin, "postgres-bin", "", "directory with initdb and postgres, to use instead of a download")
	cmd.AddCommand(&cobra.Command{
		Use: "process", Hidden: true, Args: exactly(0, "no arguments"), Short: "Run a process of prove",
		RunE: func(cmd *cobra.Command, _ []string) error { return prove.Child(cmd.Context(), a.stdin, a.stderr) },
	})
	return cmd
}

func (p *proveFlags) check() error {
	switch {
	case p.duration < 10*time.Second || p.duration > 24*time.Hour:
		return posthaste.Invalidf("duration", "--duration must be 10s to 24h, got %s", p.duration)
	case p.rate < 1 || p.rate > 10_000:
		return posthaste.Invalidf("rate", "--rate must be 1 to 10000 messages per second, got %g", p.rate)
	case p.workers < 1 || p.workers > 20:
		return posthaste.Invalidf("workers", "--workers must be 1 to 20, got %d", p.workers)
	}
	return nil
}

// The files in the data directory, beside those of PostgreSQL.
const (
	histories  = "histories"
	processLog = "processes.log"
)

func (p *proveFlags) run(ctx context.Context, a *app) error {
	if err := p.check(); err != nil {
		return err
	}
	dir, err := p.directory()
	if err != nil {
		return err
	}
	defer func() {
		if !p.keep { // print sets it if the histories are evidence
			_ = devpg.Remove(context.WithoutCancel(ctx), dir)
			_ = os.RemoveAll(filepath.Join(dir, histories))
			_ = os.Remove(filepath.Join(dir, processLog))
			_ = os.Remove(dir)
		}
	}()
	log, err := openProcessLog(dir)
	if err != nil {
		return err
	}
	defer log.Close()
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to start its processes: %w", err)
	}
	pg, err := p.startPostgres(ctx, a, dir, log)
	if err != nil {
		return err
	}
	defer stopStore(a, "PostgreSQL", pg)
	if err := install(ctx, pg.URL(), postgres.MigrateOptions{NoRoles: true}); err != nil {
		return err
	}
	a.signal.announce.Store(true)
	fmt.Fprintf(a.stderr, "posthaste: killing %d workers, 2 senders and PostgreSQL %s for %s; seed %d\n", p.workers, pg.Version(), p.duration, p.seed)
	report, err := prove.Run(ctx, prove.Options{
		Command: []string{program, "prove", "process"}, Dir: filepath.Join(dir, histories), Database: pg,
		Duration: p.duration, Rate: p.rate, Workers: p.workers, Seed: uint64(p.seed), Words: log,
		Tell: func(at time.Duration, line string) {
			fmt.Fprintf(a.stderr, "%3d:%02d  %s\n", int(at.Minutes()), int(at.Seconds())%60, line)
		},
	})
	if err != nil {
		return err
	}
	return p.print(a, report, dir)
}

// openProcessLog creates the log of the processes, which only this user can read.
func openProcessLog(dir string) (*os.File, error) {
	log, err := os.OpenFile(filepath.Join(dir, processLog), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, dataError("cannot be written", err)
	}
	return log, nil
}

// startPostgres starts PostgreSQL and shows the progress of the first start.
func (p *proveFlags) startPostgres(ctx context.Context, a *app, dir string, log io.Writer) (*devpg.Server, error) {
	show := newProgress(a.stderr)
	started := false
	pg, err := devpg.Start(ctx, devpg.Config{DataDir: dir, BinDir: p.postgresBin, Log: log, Progress: func(stage string, done, total int64) {
		if !started { // it is started again after each kill
			show.stage(stage, done, total)
		}
	}})
	started = true
	show.end()
	return pg, err
}

// directory creates the data directory and the folder of the histories.
func (p *proveFlags) directory() (string, error) {
	dir := p.data
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "posthaste-prove-"); err != nil {
			return "", dataError("cannot be created", err)
		}
	}
	mode := fs.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711 // the user that runs PostgreSQL must be able to traverse it
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return "", dataError("cannot be created", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return "", dataError("cannot be read", err)
	}
	if len(files) > 0 {
		return "", posthaste.Invalidf("data", "--data must be an empty directory, and %s contains %s", dir, files[0].Name())
	}
	if err := os.Chmod(dir, mode); err != nil { // not before it is known to contain nothing of others
		return "", dataError("cannot be used", err)
	}
	if err := os.Mkdir(filepath.Join(dir, histories), 0o700); err != nil {
		return "", dataError("cannot be written", err)
	}
	return filepath.Abs(dir)
}

// print prints the account. It returns an error without a text if a promise was broken.
func (p *proveFlags) print(a *app, r *prove.Report, dir string) error {
	if err := a.print(r, func(w *screen) {
		fmt.Fprintln(w)
		table(w, "AT KILLED IN_FLIGHT HANDLED_TWICE LAST_REDELIVERY FLOWED_AGAIN", func(row func(...any)) {
			for _, f := range r.Faults {
				row(f.At, f.Whom, f.InFlight, f.Doubled, f.LastRedelivery, f.FlowedAfter)
			}
		})
		fmt.Fprintln(w)
		table(w, "MESSAGES NUMBER", func(row func(...any)) {
			row("sent and acknowledged", r.Acknowledged)
			row("handled", r.Handled)
			row("lost", r.Lost)
			row("handled twice", r.Doubled)
			row("handled twice, unexplained", r.Unexplained)
			row("without an answer, and arrived", r.UnknownHandled)
			row("without an answer, and not stored", r.Unknown-r.UnknownHandled)
			row("refused or rolled back", r.Refused+r.RolledBack)
			row("of those, delivered", r.Ghosts)
		})
		fmt.Fprintln(w)
		for _, line := range r.Words() {
			fmt.Fprintln(w, line)
		}
		for i, line := range r.Broken {
			if i == maxBroken {
				fmt.Fprintf(w, "%s and %d more; --json lists all\n", w.paint("BROKEN", red), len(r.Broken)-maxBroken)
				break
			}
			fmt.Fprintf(w, "%s %s\n", w.paint("BROKEN", red), line)
		}
		if r.Kept() {
			fmt.Fprintln(w, w.paint("Every promise was kept.", green))
		}
	}); err != nil {
		return err
	}
	p.keep = p.keep || !r.Kept()
	if p.keep {
		fmt.Fprintf(a.stderr, "posthaste: histories, logs and the database are in %s\n", dir)
	}
	if !r.Kept() {
		return &exitError{code: exitFailed} // the report has the reasons
	}
	return nil
}

// maxBroken is how many broken promises are printed.
const maxBroken = 10
