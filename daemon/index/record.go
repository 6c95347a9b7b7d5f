package index

import (
	"encoding/binary"
	"time"

	"singlepass.dev/daemon/execution"
)

// record is what the index knows of an execution.
type record struct {
	X         execution.Execution
	Ordinal   uint64   // its place in the order of acceptance
	Last      Position // the entry that changed it last
	Accepted  Position
	Arguments bool     // the entry at Accepted carries the sealed arguments
	HasResult bool     // the entry at Result carries the sealed result
	Result    Position // zero without HasResult

	HasAwaited bool     // the entry at Awaited carries what the target answered when it took it; of two such entries the later one
	Awaited    Position // zero without HasAwaited

	Earlier []uint64 // the executions with its actor, scope and fingerprint that a repeat was to be compared with when it was accepted, oldest first
}

// perGroup is how many records, neighbours in the order of acceptance, are stored as one row: few large rows are cheap to write, and neighbours have most of their texts
// in common, which are stored once. More would make reading one of them dearer.
const perGroup = 8

// coder writes records and reads them back by the same walk, so that the two cannot differ. A text that equals the one at the same place in the record before is one byte; times and
// positions are differences to the ones before.
type coder struct {
	reading   bool
	malformed bool
	to        []byte // writing
	from      string // reading; every text that is read is a piece of it

	caller   execution.Caller
	attempt  execution.Attempt
	check    execution.Check
	position Position
	seconds  int64
	nanos    int
}

func encodeGroup(to []byte, group []*record) []byte {
	c := coder{to: append(to, byte(len(group)))}
	before := new(record)
	for _, r := range group {
		c.record(r, before)
		before = r
	}
	return c.to
}

func decodeRecords(b []byte) ([]*record, error) {
	if len(b) == 0 || int(b[0]) > perGroup {
		return nil, malformedRow()
	}
	c := coder{reading: true, from: string(b[1:])}
	group := make([]*record, b[0])
	before := new(record)
	for i := range group {
		group[i] = new(record)
		c.record(group[i], before)
		before = group[i]
	}
	if c.malformed || c.from != "" {
		return nil, malformedRow()
	}
	return group, nil
}

// decodeRecord returns the nth record of a group, for which it has to read the ones before it.
func decodeRecord(b []byte, n int) (*record, error) {
	if len(b) == 0 || int(b[0]) > perGroup || n >= int(b[0]) {
		return nil, malformedRow()
	}
	c := coder{reading: true, from: string(b[1:])}
	r := new(record)
	for range n + 1 {
		c.record(r, r) // what equals the one before is there already
	}
	if c.malformed {
		return nil, malformedRow()
	}
	return r, nil
}

func (c *coder) record(r, before *record) {
	x, y := &r.X, &before.X
	text(c, &x.ID, y.ID)
	a, b := &x.Acceptance, &y.Acceptance
	text(c, &a.Tool, b.Tool)
	text(c, &a.Action, b.Action)
	text(c, &a.ContractDigest, b.ContractDigest)
	text(c, &a.Channel, b.Channel)
	text(c, &a.Target, b.Target)
	text(c, &a.Credential, b.Credential)
	text(c, &a.Class, b.Class)
	text(c, &a.Actor, b.Actor)
	text(c, &a.ActorDigest, b.ActorDigest)
	text(c, &a.Run, b.Run)
	text(c, &a.Scope, b.Scope)
	text(c, &a.Fingerprint, b.Fingerprint)
	text(c, &a.EffectDigest, b.EffectDigest)
	number(c, &a.AttachWindow)
	text(c, &a.AfterDelivery, b.AfterDelivery)
	number(c, &a.KeyLifetime)
	number(c, &a.Retention)
	text(c, &a.Again, b.Again)
	text(c, &x.State, y.State)
	text(c, &x.Outcome, y.Outcome)
	number(c, &x.TargetStatus)
	text(c, &x.Source, y.Source)
	for _, t := range []*time.Time{&x.AcceptedAt, &x.AuthorizedAt, &x.DispatchedAt, &x.CompletedAt, &x.DeliveredAt, &x.ChangedAt} {
		c.time(t)
	}
	text(c, &x.AuthorizedBy, y.AuthorizedBy)
	text(c, &x.Result, y.Result)
	text(c, &x.Reason, y.Reason)
	text(c, &x.Code, y.Code)
	for i := range list(c, &x.Attempts) {
		c.oneAttempt(&x.Attempts[i])
	}
	for i := range list(c, &x.Callers) {
		c.oneCaller(&x.Callers[i])
	}
	for i := range list(c, &x.Checks) {
		c.oneCheck(&x.Checks[i])
	}
	number(c, &x.Dropped)
	c.flags(&x.InDoubt, &x.Pruned, &r.Arguments, &r.HasResult, &r.HasAwaited)

	number(c, &r.Ordinal)
	c.place(&r.Accepted)
	c.place(&r.Last)
	if r.HasResult {
		c.place(&r.Result)
	} else if c.reading {
		r.Result = Position{}
	}
	if r.HasAwaited {
		c.place(&r.Awaited)
	} else if c.reading {
		r.Awaited = Position{}
	}
	for i := range list(c, &r.Earlier) {
		number(c, &r.Earlier[i])
	}
}

func (c *coder) oneAttempt(a *execution.Attempt) {
	b := &c.attempt
	number(c, &a.Number)
	c.time(&a.DispatchedAt)
	c.time(&a.EndedAt)
	text(c, &a.Outcome, b.Outcome)
	text(c, &a.Reason, b.Reason)
	c.time(&a.AwaitedSince)
	number(c, &a.AskAfter)
	c.attempt = *a
}

func (c *coder) oneCheck(a *execution.Check) {
	b := &c.check
	c.time(&a.At)
	text(c, &a.Finding, b.Finding)
	text(c, &a.Source, b.Source)
	text(c, &a.By, b.By)
	text(c, &a.Evidence, b.Evidence)
	text(c, &a.Reason, b.Reason)
	number(c, &a.Times)
	c.check = *a
}

func (c *coder) oneCaller(a *execution.Caller) {
	b := &c.caller
	text(c, &a.Call, b.Call)
	text(c, &a.Run, b.Run)
	text(c, &a.Transport, b.Transport)
	text(c, &a.Connection, b.Connection)
	text(c, &a.RequestID, b.RequestID)
	text(c, &a.Session, b.Session)
	text(c, &a.Protocol, b.Protocol)
	text(c, &a.Client, b.Client)
	text(c, &a.Key, b.Key)
	c.time(&a.At)
	text(c, &a.Delivered, b.Delivered)
	c.flags(&a.Disputed)
	c.caller = *a
}

// text codes a string: 0 where it is the one before, else its length plus 1 and its bytes.
func text[T ~string](c *coder, v *T, before T) {
	if !c.reading {
		if *v == before {
			c.to = append(c.to, 0)
			return
		}
		c.to = append(binary.AppendUvarint(c.to, uint64(len(*v))+1), *v...)
		return
	}
	n := c.uvarint()
	if n == 0 {
		*v = before
		return
	}
	if n--; n > uint64(len(c.from)) {
		c.malformed = true
		return
	}
	*v, c.from = T(c.from[:n]), c.from[n:]
}

func (c *coder) uvarint() uint64 {
	var v uint64
	for i := 0; i < len(c.from) && i < binary.MaxVarintLen64; i++ {
		b := c.from[i]
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			c.from = c.from[i+1:]
			return v
		}
	}
	c.malformed, c.from = true, ""
	return 0
}

// number codes an integer so that small ones of either sign are short.
func number[T ~int | ~int64 | ~uint64](c *coder, v *T) {
	if !c.reading {
		c.to = binary.AppendVarint(c.to, int64(*v))
		return
	}
	u := c.uvarint()
	*v = T(int64(u>>1) ^ -int64(u&1))
}

// list codes the length of a list and, reading, makes room for it. An element takes a byte at least.
func list[T any](c *coder, v *[]T) []T {
	n := len(*v)
	number(c, &n)
	if c.reading {
		if n < 0 || n > len(c.from) {
			c.malformed = true
			return nil
		}
		switch {
		case n == 0:
			*v = nil
		case n <= cap(*v):
			*v = (*v)[:n]
		default:
			*v = make([]T, n)
		}
	}
	return *v
}

func (c *coder) flags(flags ...*bool) {
	if !c.reading {
		var b byte
		for i, f := range flags {
			if *f {
				b |= 1 << i
			}
		}
		c.to = append(c.to, b)
		return
	}
	if c.from == "" {
		c.malformed = true
		return
	}
	for i, f := range flags {
		*f = c.from[0]&(1<<i) != 0
	}
	c.from = c.from[1:]
}

// time codes a time in UTC: 0 for none, 1 for the one before, else 2 and how far it is from that.
func (c *coder) time(t *time.Time) {
	if !c.reading {
		seconds, nanos := t.Unix(), t.Nanosecond()
		switch {
		case t.IsZero():
			c.to = append(c.to, 0)
		case seconds == c.seconds && nanos == c.nanos:
			c.to = append(c.to, 1)
		default:
			c.to = binary.AppendVarint(append(c.to, 2), seconds-c.seconds)
			c.to = binary.AppendVarint(c.to, int64(nanos-c.nanos))
			c.seconds, c.nanos = seconds, nanos
		}
		return
	}
	switch c.uvarint() {
	case 0:
		*t = time.Time{}
		return
	case 1:
	case 2:
		var seconds, nanos int64
		number(c, &seconds)
		number(c, &nanos)
		c.seconds, c.nanos = c.seconds+seconds, c.nanos+int(nanos)
	default:
		c.malformed = true
	}
	*t = time.Unix(c.seconds, int64(c.nanos)).UTC()
}

func (c *coder) place(p *Position) {
	segment, offset, seq := p.Segment-c.position.Segment, p.Offset-c.position.Offset, p.Seq-c.position.Seq
	number(c, &segment)
	number(c, &offset)
	number(c, &seq)
	if !c.reading {
		c.to = append(c.to, p.Hash[:]...)
	} else if p.Segment, p.Offset, p.Seq = c.position.Segment+segment, c.position.Offset+offset, c.position.Seq+seq; len(c.from) < len(p.Hash) {
		c.malformed = true
	} else {
		c.from = c.from[copy(p.Hash[:], c.from):]
	}
	c.position = *p
}
