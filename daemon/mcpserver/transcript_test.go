package mcpserver_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"singlepass.dev/daemon/mcpserver/enginetest"
)

var update = flag.Bool("update", false, "write what the server says into the transcripts")

// TestTranscripts plays each testdata/*.txtar: what "client" says is sent, and "server" is exactly what must come back, in turns.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("found %d transcripts: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			transcript, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			w := newWire(t, dial(t, newServer(t, enginetest.New(t), nil), "socket"))
			for i, turn := range transcript.Files {
				switch turn.Name {
				case "client":
					w.send(strings.TrimSuffix(string(turn.Data), "\n"))
				case "server":
					var got bytes.Buffer
					for range bytes.Count(turn.Data, []byte("\n")) {
						got.WriteString(w.recv() + "\n")
					}
					if *update {
						transcript.Files[i].Data = got.Bytes()
					} else if !bytes.Equal(got.Bytes(), turn.Data) {
						t.Errorf("in turn %d the server said\n%swant\n%s", i+1, got.Bytes(), turn.Data)
					}
				default:
					t.Fatalf("turn %d is of %q, want client or server", i+1, turn.Name)
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(transcript), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
