package payload_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"strings"
	"sync"
	"testing"

	"singlepass.dev/daemon/payload"
)

var update = flag.Bool("update", false, "write testdata/vectors.json anew; only for a new format version")

const id = "act_01J8ZQ4T0N4W5B6C7D8E9F0G1H"

func pair(t testing.TB) hpke.PrivateKey {
	t.Helper()
	k, err := hpke.DHKEM(ecdh.X25519()).GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sealer(t testing.TB, k hpke.PrivateKey) *payload.Sealer {
	t.Helper()
	s, err := payload.NewSealer(payload.Config{PublicKey: k.PublicKey().Bytes(), Random: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// opener counts how often it decapsulates.
func opener(t testing.TB, k hpke.PrivateKey) (*payload.Opener, *int) {
	t.Helper()
	n := new(int)
	o, err := payload.NewOpener(func(r payload.Recipient, enc []byte) ([]byte, error) {
		*n++
		if r != payload.RecipientOf(k.PublicKey().Bytes()) {
			return nil, errors.New("sealed to another key")
		}
		return payload.DeriveKey(k, enc)
	})
	if err != nil {
		t.Fatal(err)
	}
	return o, n
}

func mustSeal(t testing.TB, s *payload.Sealer, kind payload.Kind, plain []byte) []byte {
	t.Helper()
	b, err := s.Seal(id, kind, plain)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWhatIsSealedOpensAgain(t *testing.T) {
	k := pair(t)
	s := sealer(t, k)
	o, derivations := opener(t, k)
	for _, n := range []int{0, 1, 254, 255, 256, 257, 1000, 4095, 4096, 1 << 20, payload.MaxSize} {
		plain := bytes.Repeat([]byte{0x80, 0, 'x'}, n/3+1)[:n] // ends like padding in two cases of three
		got, err := o.Open(id, payload.Result, mustSeal(t, s, payload.Result, plain))
		if err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("%d bytes: %d came back, %v", n, len(got), err)
		}
	}
	if *derivations != 1 {
		t.Errorf("one epoch cost %d decapsulations", *derivations)
	}
	if _, err := s.Seal(id, payload.Result, make([]byte, payload.MaxSize+1)); err == nil {
		t.Error("a payload beyond MaxSize was sealed")
	}
}

func TestAPayloadOpensOnlyAsWhatItWasSealedAs(t *testing.T) {
	k := pair(t)
	o, _ := opener(t, k)
	sealed := mustSeal(t, sealer(t, k), payload.Arguments, []byte("canary-not-a-secret-arguments"))
	for _, c := range []struct {
		id   string
		kind payload.Kind
	}{{id, payload.Result}, {id + "X", payload.Arguments}, {id[:len(id)-1], payload.Arguments}, {"d" + id, "accepte"}, {id, "accepteda"}} {
		if _, err := o.Open(c.id, c.kind, sealed); !errors.Is(err, payload.ErrNotOpened) {
			t.Errorf("opened as %s of %s: %v", c.kind, c.id, err)
		}
	}
	for _, c := range []struct {
		id   string
		kind payload.Kind
	}{{"", payload.Result}, {id, ""}, {id, payload.Kind(strings.Repeat("k", 256))}} {
		if _, err := o.Open(c.id, c.kind, sealed); err == nil || errors.Is(err, payload.ErrNotOpened) {
			t.Errorf("opening as %q of %q: %v", c.kind, c.id, err)
		}
	}
}

func TestEveryChangedByteIsNoticed(t *testing.T) {
	k := pair(t)
	o, _ := opener(t, k)
	sealed := mustSeal(t, sealer(t, k), payload.Result, []byte(`{"ok":true}`))
	for i := range sealed {
		b := bytes.Clone(sealed)
		b[i] ^= 0x40
		if got, err := o.Open(id, payload.Result, b); err == nil {
			t.Fatalf("byte %d changed and %q came back", i, got)
		}
	}
	for n := range sealed {
		if _, err := o.Open(id, payload.Result, sealed[:n]); !errors.Is(err, payload.ErrNotOpened) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	if _, err := o.Open(id, payload.Result, append(bytes.Clone(sealed), 0)); !errors.Is(err, payload.ErrNotOpened) {
		t.Errorf("with a byte more: %v", err)
	}
	if _, err := o.Open(id, payload.Result, sealed); err != nil {
		t.Errorf("the untouched one: %v", err)
	}
}

func TestShortPayloadsHaveOneLengthAndLongOnesFew(t *testing.T) {
	k := pair(t)
	s := sealer(t, k)
	plain := make([]byte, 1<<16)
	lengths := map[int]bool{}
	empty := len(mustSeal(t, s, payload.Result, nil))
	for n := range 1 << 13 {
		length := len(mustSeal(t, s, payload.Result, plain[:n]))
		lengths[length] = true
		if n < 256 != (length == empty) {
			t.Fatalf("%d bytes are sealed in %d, none in %d", n, length, empty)
		}
		if n >= 256 && float64(length-empty+256) > 1.12*float64(n+1) {
			t.Fatalf("%d bytes are padded to %d", n, length-empty+256)
		}
	}
	if len(lengths) > 90 {
		t.Errorf("8192 lengths show as %d", len(lengths))
	}
}

func TestALockedDaemonHoldsNothingThatOpensWhatWasSealedBefore(t *testing.T) {
	k := pair(t)
	before, after := sealer(t, k), sealer(t, k)
	old := mustSeal(t, before, payload.Result, []byte("old"))
	before.Wipe()
	if _, err := before.Seal(id, payload.Result, nil); !errors.Is(err, payload.ErrWiped) {
		t.Errorf("sealing after Wipe: %v", err)
	}
	young := mustSeal(t, after, payload.Result, []byte("new"))
	if bytes.Equal(old[9:41], young[9:41]) {
		t.Error("two epochs share an encapsulated key")
	}

	locked := false
	o, err := payload.NewOpener(func(_ payload.Recipient, enc []byte) ([]byte, error) {
		if locked {
			return nil, errors.New("vault is locked")
		}
		return payload.DeriveKey(k, enc)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Open(id, payload.Result, old); err != nil {
		t.Fatal(err)
	}
	locked = true
	o.Wipe()
	for _, sealed := range [][]byte{old, young} {
		if _, err := o.Open(id, payload.Result, sealed); err == nil || !strings.Contains(err.Error(), "vault is locked") {
			t.Errorf("opening while locked: %v", err)
		}
	}
	locked = false
	if got, err := o.Open(id, payload.Result, young); err != nil || string(got) != "new" {
		t.Errorf("after unlock: %q, %v", got, err)
	}
}

func TestAKeyThatArrivesAfterWipeIsNotKept(t *testing.T) {
	k := pair(t)
	sealed := mustSeal(t, sealer(t, k), payload.Result, nil)
	var o *payload.Opener
	derivations := 0
	o, err := payload.NewOpener(func(_ payload.Recipient, enc []byte) ([]byte, error) {
		if derivations++; derivations == 1 {
			o.Wipe() // the lock comes while the vault computes
		}
		return payload.DeriveKey(k, enc)
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := o.Open(id, payload.Result, sealed); err != nil {
			t.Fatal(err)
		}
	}
	if derivations != 2 {
		t.Errorf("%d derivations: the one that began before Wipe must not be remembered, the next must", derivations)
	}
}

func TestMadeUpEpochsPushNothingOut(t *testing.T) {
	k := pair(t)
	o, derivations := opener(t, k)
	sealed := mustSeal(t, sealer(t, k), payload.Result, nil)
	if _, err := o.Open(id, payload.Result, sealed); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		b := bytes.Clone(sealed)
		b[9], b[10] = b[9]+1, byte(i)
		if _, err := o.Open(id, payload.Result, b); !errors.Is(err, payload.ErrNotOpened) {
			t.Fatalf("made-up epoch: %v", err)
		}
	}
	*derivations = 0
	if _, err := o.Open(id, payload.Result, sealed); err != nil || *derivations != 0 {
		t.Errorf("the real epoch's key was forgotten: %d derivations, %v", *derivations, err)
	}
}

func TestManySealAndOpenAtOnce(t *testing.T) {
	k := pair(t)
	s := sealer(t, k)
	o, err := payload.NewOpener(func(_ payload.Recipient, enc []byte) ([]byte, error) { return payload.DeriveKey(k, enc) })
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 50 {
				sealed, err := s.Seal(id, payload.Result, []byte("r"))
				if errors.Is(err, payload.ErrWiped) {
					return
				}
				if got, err := o.Open(id, payload.Result, sealed); err != nil || string(got) != "r" {
					t.Errorf("%q, %v", got, err)
				}
			}
		})
	}
	group.Go(o.Wipe)
	group.Go(s.Wipe)
	group.Wait()
}

func TestASealerRefusesWhatIsMissing(t *testing.T) {
	public := pair(t).PublicKey().Bytes()
	for what, c := range map[string]payload.Config{
		"no random": {PublicKey: public}, "no key": {Random: rand.Reader}, "short key": {PublicKey: public[1:], Random: rand.Reader},
		"low-order key": {PublicKey: make([]byte, 32), Random: rand.Reader},
	} {
		if _, err := payload.NewSealer(c); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	if _, err := payload.NewOpener(nil); err == nil {
		t.Error("an opener without derive was made")
	}
	s, err := payload.NewSealer(payload.Config{PublicKey: public, Random: bytes.NewReader(make([]byte, 23))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Seal(id, payload.Result, nil); err == nil {
		t.Error("a payload was sealed under half a nonce")
	}
}

type vector struct {
	Private   string `json:"private_key_not_a_secret"`
	Recipient string `json:"recipient"`
	ID        string `json:"execution_id"`
	Kind      string `json:"kind"`
	Plain     string `json:"plaintext"`
	Sealed    string `json:"sealed"`
}

// The vectors hold the format still: what a release has sealed opens for ever.
func TestFrozenVectorsOpen(t *testing.T) {
	const path = "testdata/vectors.json"
	if *update {
		writeVectors(t, path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) != 4 {
		t.Fatalf("%d vectors", len(vectors))
	}
	decode := func(s string) []byte {
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, v := range vectors {
		k, err := hpke.DHKEM(ecdh.X25519()).NewPrivateKey(decode(v.Private))
		if err != nil {
			t.Fatal(err)
		}
		if r := payload.RecipientOf(k.PublicKey().Bytes()); !bytes.Equal(r[:], decode(v.Recipient)) {
			t.Errorf("recipient of %s is %x", v.ID, r)
		}
		o, _ := opener(t, k)
		got, err := o.Open(v.ID, payload.Kind(v.Kind), decode(v.Sealed))
		if err != nil || string(got) != v.Plain {
			t.Errorf("%s of %s: %q, %v", v.Kind, v.ID, got, err)
		}
	}
}

func writeVectors(t *testing.T, path string) {
	var vectors []vector
	for i, plain := range []string{"", `{"content":[{"type":"text","text":"deployed"}]}`, strings.Repeat("long ", 100), "ends in \x00\x00"} {
		k := pair(t)
		s := sealer(t, k)
		private, err := k.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		kind := []payload.Kind{payload.Arguments, payload.Result}[i%2]
		r := s.Recipient()
		b64 := base64.StdEncoding.EncodeToString
		vectors = append(vectors, vector{b64(private), b64(r[:]), id, string(kind), plain, b64(mustSeal(t, s, kind, []byte(plain)))})
	}
	b, err := json.MarshalIndent(vectors, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

func FuzzOpen(f *testing.F) {
	k := pair(f)
	o, _ := opener(f, k)
	sealed := mustSeal(f, sealer(f, k), payload.Result, []byte("r"))
	f.Add(sealed)
	f.Add([]byte{})
	f.Add(sealed[:200])
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := o.Open(id, payload.Result, b)
		if err == nil && !bytes.Equal(b, sealed) {
			t.Fatalf("%x opens to %q", b, got)
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	for _, c := range []struct {
		name string
		size int
	}{{"200B", 200}, {"2KiB", 2 << 10}} {
		b.Run(c.name, func(b *testing.B) {
			s := sealer(b, pair(b))
			plain := make([]byte, c.size)
			b.SetBytes(int64(c.size))
			b.ReportAllocs()
			for b.Loop() {
				mustSeal(b, s, payload.Result, plain)
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	k := pair(b)
	o, _ := opener(b, k)
	sealed := mustSeal(b, sealer(b, k), payload.Result, make([]byte, 200))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := o.Open(id, payload.Result, sealed); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEncapsulation is what one HPKE encapsulation for each payload would cost instead: the floor that epochs go below.
func BenchmarkEncapsulation(b *testing.B) {
	public := pair(b).PublicKey()
	plain := make([]byte, 256)
	for b.Loop() {
		if _, err := hpke.Seal(public, hpke.HKDFSHA256(), hpke.ChaCha20Poly1305(), nil, plain); err != nil {
			b.Fatal(err)
		}
	}
}
