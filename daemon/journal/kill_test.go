package journal_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"singlepass.dev/daemon/journal"
)

const childDir = "SINGLEPASS_TEST_JOURNAL_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := appendForever(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// appendForever prints the number and hash of each acknowledged entry, until it is killed.
func appendForever(dir string) error {
	cfg := config(dir)
	cfg.SegmentSize = 32 << 10
	j, _, err := journal.Open(cfg)
	if err != nil {
		return err
	}
	fmt.Println("ready 0")
	var mu sync.Mutex
	failed := make(chan error)
	for w := range 6 {
		go func() {
			for i := 0; ; i++ {
				e := event(i)
				e.Lazy = w%2 == 0
				if w == 5 {
					e.Sealed = make([]byte, 3000)
				}
				c := j.Append(e, event(w))
				if err := c.Wait(context.Background()); err != nil {
					failed <- err
					return
				}
				mu.Lock()
				fmt.Println(c.Last().Hash, c.Last().Seq)
				mu.Unlock()
			}
		}()
	}
	return <-failed
}

func TestAfterAKillEveryAcknowledgedEntryIsThereAndTheChainVerifies(t *testing.T) {
	dir := newDir(t)
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	known := map[uint64]string{}
	random := rand.New(rand.NewPCG(1, 2))
	var trusted *journal.Position
	for round := range rounds {
		acknowledged := runAndKill(t, dir, random.IntN(60))
		for seq, hash := range acknowledged {
			known[seq] = hash
		}
		cfg := config(dir)
		if round%2 == 0 {
			cfg.Trusted = trusted
		}
		j, r := open(t, cfg)
		if r.Quarantine != nil {
			t.Fatalf("round %d: %v", round, r.Quarantine)
		}
		found := map[uint64]string{}
		if err := j.Read(journal.Position{}, func(d journal.Durable) error {
			found[d.Seq] = d.Hash.String()
			return nil
		}); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for seq, hash := range known {
			if found[seq] != hash {
				t.Fatalf("round %d: acknowledged entry %d is gone", round, seq)
			}
		}
		head := j.Head()
		trusted = &head
		closeNow(t, j)
	}
	if len(known) < rounds {
		t.Fatalf("only %d entries were acknowledged in %d rounds", len(known), rounds)
	}
}

// runAndKill kills the child once it has acknowledged so many entries, and returns all that it did.
func runAndKill(t *testing.T, dir string, after int) map[uint64]string {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	acknowledged := map[uint64]string{}
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		if n == after {
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		var hash, number string
		if _, err := fmt.Sscan(lines.Text(), &hash, &number); err != nil {
			continue // The kill came inside of a line.
		}
		if seq, err := strconv.ParseUint(number, 10, 64); err == nil && len(hash) == 64 {
			acknowledged[seq] = hash
		}
	}
	child.Wait() //nolint:errcheck // It was killed.
	return acknowledged
}
