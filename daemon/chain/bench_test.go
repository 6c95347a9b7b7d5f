package chain_test

import (
	"crypto/sha256"
	"strings"
	"testing"

	"singlepass.dev/daemon/chain"
)

func benchEvent() []byte {
	return []byte(`{"kind":"dispatched","execution_id":"act_01JNZX5T7V9M3Q8R2W4Y6A0BCD","attempt":1,"target":"https://deploy-api.internal.example/v1/releases","note":"` +
		strings.Repeat("n", 240) + `"}`)
}

func BenchmarkLine(b *testing.B) {
	event := benchEvent()
	raw, _ := chain.AppendLine(nil, 123456, at, chain.Hash{}, event, nil)
	l, err := chain.Split(raw[:len(raw)-1])
	if err != nil {
		b.Fatal(err)
	}
	run := func(name string, f func()) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
	run("floor=sha256", func() { sha256.Sum256(l.Entry) })
	run("append", func() { raw, _ = chain.AppendLine(raw[:0], 123456, at, chain.Hash{}, event, nil) })
	run("split", func() { l, _ = chain.Split(raw[:len(raw)-1]) })
	run("verify", func() { l.Verify() })
	run("check event", func() { _ = l.CheckEntry() })
}
