// Package server puts the daemon's parts together: vault, records, engine, channels, the MCP face and the operator's face, on one home.
//
// It owns the order of things that involve several parts: what unlock and lock do and in which order, how an accepted contract becomes a tool, and how the daemon starts and
// stops. The parts know nothing of each other.
package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/oklog/ulid/v2"

	"singlepass.dev/daemon/channel"
	"singlepass.dev/daemon/channel/httpchan"
	"singlepass.dev/daemon/channel/mcpchan"
	"singlepass.dev/daemon/control"
	"singlepass.dev/daemon/effect"
	"singlepass.dev/daemon/egress"
	"singlepass.dev/daemon/engine"
	"singlepass.dev/daemon/home"
	"singlepass.dev/daemon/journal"
	"singlepass.dev/daemon/lockwatch"
	"singlepass.dev/daemon/mcpserver"
	"singlepass.dev/daemon/oauth"
	"singlepass.dev/daemon/peer"
	"singlepass.dev/daemon/records"
	"singlepass.dev/vault"
	"singlepass.dev/vault/keychain"
)

// Config is what a daemon is started with.
type Config struct {
	Home    home.Home
	MCPHTTP string       // optional: loopback address of the MCP listener, in place of the configuration's
	Version string       // required
	Bridge  string       // required: the installed spctl, whose "mcp" command stands for its parent
	Logger  *slog.Logger // required

	Channels map[effect.Channel]channel.Channel // optional: in place of the real ones, for benchmarks
	// Listening is optional: it is called once, with what makes the operator's socket. A group that spd was installed with goes onto the socket there (package harden).
	Listening func(listen func() error) error
	// SystemBus and SessionBus are optional: where the desktop says that it goes away; the real ones by default.
	SystemBus, SessionBus func(ctx context.Context) (*dbus.Conn, error)

	Settled func()            // optional: called when the work of the start, or of an unlock, is done
	Loaded  func(loaded bool) // optional: called when calls begin to come in crowds, and when they no longer do; one call at a time
}

// Server is a running daemon.
type Server struct {
	cfg     Config
	conf    home.Config
	log     *slog.Logger
	since   time.Time
	vault   *vault.Vault
	tokens  *oauth.Source
	records *records.Records
	engine  *engine.Engine
	mcp     *mcpserver.Server
	control *control.Server
	tickets *control.Tickets
	family  family
	tries   tries
	clients httpClients
	locked  lockedCalls

	settings atomic.Pointer[settings] // replaced as a whole; of the last open vault

	toTargets *httpchan.Channel // HTTP
	peers     *peer.Identifier

	agent, operator net.Listener
	web             net.Listener
	webServer       *http.Server

	unlocking sync.Mutex // one unlock, lock or change of contracts at a time
	used      atomic.Int64
	why       atomic.Pointer[string] // why the vault was locked last
	files     *actionFiles
	load      load
	opens     chan struct{} // told of an unlock; capacity 1
	signed    atomic.Uint64 // the entry up to which the newest checkpoint goes

	upstreams upstreams

	base context.Context // what the daemon does by itself runs on it
	stop context.CancelFunc
	work sync.WaitGroup
}

// Open makes everything ready: places, vault, records, engine, sockets. Nothing is served until Serve.
func Open(cfg Config) (_ *Server, err error) {
	if cfg.Logger == nil || cfg.Version == "" || cfg.Bridge == "" {
		return nil, errors.New("opening daemon: Logger, Version and Bridge are required")
	}
	if err := cfg.Home.Create(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, load: load{tell: cfg.Loaded}, log: cfg.Logger, since: time.Now().UTC(), opens: make(chan struct{}, 1)}
	s.base, s.stop = context.WithCancel(context.Background())
	if s.conf, err = cfg.Home.LoadConfig(); err != nil {
		return nil, err
	}
	if cfg.MCPHTTP != "" {
		if err := home.CheckLoopback(cfg.MCPHTTP); err != nil {
			return nil, err
		}
		s.conf.MCPHTTP = cfg.MCPHTTP
	}
	usual := defaultSettings()
	s.settings.Store(&usual)
	s.files = &actionFiles{dir: s.conf.Actions, log: cfg.Logger}
	// What was opened is closed again if something after it fails.
	var undo []func() error
	defer func() {
		if err != nil {
			for i := len(undo) - 1; i >= 0; i-- {
				err = errors.Join(err, undo[i]())
			}
		}
	}()
	if s.vault, err = vault.Open(vault.Config{Path: cfg.Home.Vault(), Keychain: keychain.New(), Now: time.Now, Rand: rand.Reader}); err != nil {
		return nil, err
	}
	undo = append(undo, s.vault.Close)
	s.records, err = records.Open(records.Config{
		Dir: cfg.Home.Data, Now: time.Now, Random: rand.Reader, SegmentSize: s.conf.SegmentSize, Logger: cfg.Logger,
		Folded: func(seq uint64) {
			if e := s.engine; e != nil {
				e.Folded(seq)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	undo = append(undo, s.records.Close)
	if s.tokens, err = oauth.New(oauth.Config{Vault: s.vault, Now: time.Now, Logger: cfg.Logger, Renewed: s.renewed, Dialer: egress.New(egress.Config{Proxy: s.proxy})}); err != nil {
		return nil, err
	}
	s.vault.OnLock(s.tokens.Locked)
	channels := cfg.Channels
	web := httpchan.New(httpchan.Config{Proxy: s.proxy})
	s.toTargets = web
	if err := s.openUpstreams(mcpchan.Config{HTTP: web}); err != nil {
		return nil, err
	}
	if channels == nil {
		overSSH, err := newSSH()
		if err != nil {
			return nil, err
		}
		channels = map[effect.Channel]channel.Channel{effect.HTTP: web, effect.MCP: s.upstreams.channel, effect.SSH: overSSH}
	}
	s.engine, err = engine.New(engine.Config{
		Journal: s.records, Records: s.records, Vault: vaultOf{s.vault, s.tokens}, Channels: channels, Reader: s.upstreams.channel, Programs: programs{s.vault}, Standing: standingGrants{s},
		Now: time.Now, NewID: newULID, Logger: cfg.Logger, AnswerWithin: s.conf.AnswerWithin,
		Notify: func(n engine.Notice) {
			if n.Kind == engine.NoticeLockedCall {
				s.locked.count(time.Now())
			}
			s.log.Warn(n.Text, "notice", n.Kind, "run", n.Run, "tool", n.Tool, "execution_id", n.ID)
		},
	})
	if err != nil {
		return nil, err
	}
	if q := s.records.Journal().Quarantine(); q != nil {
		s.log.Error("the journal does not verify and is in quarantine", "found", q.String())
		s.engine.SetQuarantine(true)
	}
	if err := s.engine.Recover(); err != nil && !errors.Is(err, journal.ErrQuarantine) {
		return nil, err
	}
	return s, s.listen(cfg)
}

// hold binds to the process behind the operator's socket.
func (s *Server) hold(p control.Peer) (control.Held, error) { return s.peers.Hold(p.PID, p.Start) }

// ids makes ULIDs that sort in the order in which they were made.
var ids = struct {
	sync.Mutex
	entropy *ulid.MonotonicEntropy
}{entropy: ulid.Monotonic(rand.Reader, 0)}

func newULID() string {
	ids.Lock()
	defer ids.Unlock()
	return ulid.MustNew(ulid.Timestamp(time.Now()), ids.entropy).String()
}

// listen makes the sockets, with their faces.
func (s *Server) listen(cfg Config) (err error) {
	if s.peers, err = peer.New(peer.Config{Bridge: cfg.Bridge}); err != nil {
		return err
	}
	if s.mcp, err = mcpserver.New(mcpserver.Config{
		Engine: touched{s.engine, s.touch, &s.load}, Logger: cfg.Logger, Version: cfg.Version, IdentifyTCP: s.identifyTCP, Authorize: s.authorizeHTTP,
	}); err != nil {
		return err
	}
	if s.tickets, err = control.NewTickets(control.TicketsConfig{
		Prover: control.Passphrases(s.vault), Hold: s.hold, Now: time.Now, Random: rand.Reader, Lifetime: func() time.Duration { return s.settings.Load().ticketLifetime },
	}); err != nil {
		return err
	}
	// Whatever locked it: a command, the clock, or the vault itself after a write whose outcome is not known.
	s.vault.OnLock(s.tickets.Drop)
	parts := &operatorSide{s}
	if s.control, err = control.New(control.Config{
		Daemon: parts, Vault: parts, Credentials: parts, Hosts: parts, Approvals: parts, Activity: parts, Verdicts: parts, Sessions: parts, Actions: parts, Upstreams: parts, Journal: parts, Settings: parts, HTTPClients: parts, Grants: parts,
		Prover: s.tickets, Tickets: s.tickets, Ancestry: parts, PeerOf: s.peerOf, Refused: s.refused, Origin: parts.Origin, Doubted: s.doubted, Now: time.Now, Logger: cfg.Logger, Translate: translate,
	}); err != nil {
		return err
	}
	if s.agent, err = listenUnix(cfg.Home.AgentSocket()); err != nil {
		return err
	}
	listening := cfg.Listening
	if listening == nil {
		listening = func(listen func() error) error { return listen() }
	}
	if err = listening(func() (err error) { s.operator, err = listenUnix(cfg.Home.OperatorSocket()); return err }); err != nil {
		return errors.Join(err, s.agent.Close())
	}
	if s.operator, err = peer.OneSpeaker(s.operator.(*net.UnixListener)); err != nil {
		return errors.Join(err, s.agent.Close())
	}
	if s.conf.MCPHTTP != "" {
		if s.web, err = net.Listen("tcp", s.conf.MCPHTTP); err != nil {
			return errors.Join(fmt.Errorf("listening for MCP over HTTP: %w", err), s.agent.Close(), s.operator.Close())
		}
		s.web = newOfThisUser(s.web, maxAgents, func(nc net.Conn, why string) {
			s.log.Debug("closing a connection at the HTTP listener", "remote", nc.RemoteAddr().String(), "why", why)
		})
		s.webServer = s.mcp.HTTPServer()
	}
	return nil
}

// listenUnix makes a socket that only its owner can connect to. The journal's lock has shown already that no other daemon uses this home, so what lies there is left over.
func listenUnix(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing the old socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("closing %s to others: %w", path, err), l.Close())
	}
	return l, nil
}

// MCPURL is where the loopback listener is; empty when there is none.
func (s *Server) MCPURL() string {
	if s.web == nil {
		return ""
	}
	return "http://" + s.web.Addr().String() + "/mcp"
}

// AgentSocket and OperatorSocket are where the faces are.
func (s *Server) AgentSocket() string    { return s.cfg.Home.AgentSocket() }
func (s *Server) OperatorSocket() string { return s.cfg.Home.OperatorSocket() }

// Serve serves until ctx is done, and calls ready once everything answers. Then it stops in order: no new calls, what is dispatched gets its time, answers are delivered, keys are wiped, the journal is closed.
func (s *Server) Serve(ctx context.Context, ready func()) error {
	base := s.base
	failed := make(chan error, 3)
	s.work.Go(func() { failed <- s.control.Serve(s.operator) })
	s.work.Go(func() { s.acceptAgents(base) })
	if s.web != nil {
		s.work.Go(func() { failed <- s.webServer.Serve(s.web) })
	}
	s.work.Go(func() { s.watchIdle(base) })
	s.work.Go(func() { s.watchDesktop(base) })
	s.work.Go(func() { s.prune(base) })
	s.work.Go(func() { s.watchUpstreams(base) })
	s.work.Go(func() { s.watchReadable(base) })
	s.work.Go(func() {
		if err := s.verify(base); err != nil && base.Err() == nil {
			s.log.Error("verifying the journal in the background", "error", err)
		}
		s.checkpoints(base)
	})
	ready()
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		err = fmt.Errorf("serving: %w", err)
	}
	return errors.Join(err, s.shutdown())
}

// grace is how long what is under way may take when the daemon stops.
const grace = 10 * time.Second

func (s *Server) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	_ = s.agent.Close()
	// What was dispatched finishes, then its answers are written and drained, and only then the connections are closed.
	err := s.engine.Close(ctx)
	err = errors.Join(err, s.mcp.Shutdown(ctx))
	if s.webServer != nil {
		_ = s.webServer.Shutdown(ctx)
	}
	_ = s.control.Shutdown(ctx)
	s.stop()
	s.work.Wait()
	s.upstreams.channel.Close()
	last, done := context.WithTimeout(context.Background(), lastCheckpoint)
	defer done()
	if err := s.checkpoint(last); err != nil {
		s.log.Warn("signing the last checkpoint", "error", err)
	}
	s.tokens.Wait(ctx)
	s.records.Locked()
	s.vault.Lock()
	return errors.Join(err, s.records.Close(), s.vault.Close())
}

// acceptAgents serves the agents' socket.
func (s *Server) acceptAgents(ctx context.Context) {
	accept(s.agent, maxAgents, func(err error) { s.log.Error("accepting an agent", "error", err) },
		func(c net.Conn) {
			id, err := s.peers.Identify(c.(*net.UnixConn))
			if err != nil {
				s.log.Warn("refusing an agent's connection", "error", err)
				s.mcp.Refuse(c, err)
				return
			}
			s.family.met(id)
			if err := s.mcp.ServeConn(ctx, c, id); err != nil {
				s.log.Debug("an agent's connection ended", "run", id.Run, "error", err)
			}
		},
		func(c net.Conn) {
			s.log.Warn("refusing an agent's connection: there are too many", "connections", maxAgents)
			_ = c.Close()
		})
}

// touch notes that the vault is in use.
func (s *Server) touch() { s.used.Store(time.Now().UnixNano()) }

// watchIdle locks the vault when nothing has used it for the setting idle_lock.
func (s *Server) watchIdle(ctx context.Context) {
	const least, most = 100 * time.Millisecond, 10 * time.Second
	t := time.NewTimer(most)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		left := most
		if after := s.settings.Load().idleLock; after != 0 && s.vault.Status() == vault.Unlocked {
			if left = after - time.Since(time.Unix(0, s.used.Load())); left <= 0 {
				s.lock("nothing used it for " + after.String())
			}
		}
		t.Reset(min(max(left, least), most))
	}
}

// watchDesktop locks the vault when the desktop goes away from the person, as far as the settings say so.
func (s *Server) watchDesktop(ctx context.Context) {
	err := lockwatch.Run(ctx, lockwatch.Config{Logger: s.log, System: s.cfg.SystemBus, Session: s.cfg.SessionBus, Lock: func(r lockwatch.Reason) {
		now := s.settings.Load()
		switch {
		case r == lockwatch.Suspend && now.lockOnSuspend:
			s.lock("the machine was about to sleep")
		case r == lockwatch.ScreenLock && now.lockOnScreen:
			s.lock("the screen was locked")
		case r == lockwatch.UserSwitch && now.lockOnSwitch:
			s.lock("another user's session came to the front")
		}
	}})
	if err != nil {
		s.log.Error("watching for locks of the desktop", "error", err)
	}
}

// pruneEvery is how often retention is looked at.
const pruneEvery = time.Hour

// prune lets go of payloads whose retention has passed.
func (s *Server) prune(ctx context.Context) {
	t := time.NewTicker(pruneEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if n, err := s.engine.Prune(ctx); err != nil {
				s.log.Error("pruning", "error", err)
			} else if n > 0 {
				s.log.Info("pruned", "executions", n)
			}
		}
	}
}

// beside is where a program of ours lies beside this one.
func beside(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding %s: %w", name, err)
	}
	return filepath.Join(filepath.Dir(self), name), nil
}

// Bridge is the spctl that was installed beside this program.
func Bridge() (string, error) { return beside("spctl") }
