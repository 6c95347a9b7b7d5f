package chain_test

import (
	"bytes"
	"os"
	"testing"
	"time"

	"singlepass.dev/daemon/chain"
)

// TestTheFormatIsFrozen: testdata/vectors.jsonl was written once. If this fails, old journals do not
// verify any more; the file is not to be changed.
func TestTheFormatIsFrozen(t *testing.T) {
	want, err := os.ReadFile("testdata/vectors.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	var head chain.Hash
	for i, v := range []struct {
		at             time.Time
		event, payload string
	}{
		{at, `{"kind":"segment_opened","segment":"journal-000001.jsonl","tree_size":0}`, ""},
		{at.Add(time.Nanosecond), `{"kind":"accepted","execution_id":"act_01JNZX5T7V9M3Q8R2W4Y6A0BCD"}`, "sealed arguments"},
		{at.Add(time.Hour).In(time.FixedZone("", 3600)), `{"kind":"dispatched","note":"\"},\"hash\":\"\u00e9é"}`, ""},
		{at.Add(24 * time.Hour).Truncate(time.Second), `{"kind":"completed","n":-1.5e3,"list":[null,true,{}]}`, "s"},
	} {
		got, head = chain.AppendLine(got, uint64(i+1), v.at, head, []byte(v.event), []byte(v.payload))
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
	const root = "49e2ac606509c3f98d95ae1142cf04c19467c176da9bb9639f017a9736370991"
	var tree chain.Tree
	for l := range chain.Lines(want) {
		tree.Append(l.Hash())
	}
	if tree.Size() != 4 || tree.Root().String() != root {
		t.Fatalf("tree head of %d entries is %s", tree.Size(), tree.Root())
	}
}
