package control

import (
	"slices"
	"strconv"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/execution"
)

// defaultLimit bounds a list that names no limit.
const (
	defaultLimit = 200
	maxLimit     = 10000
)

func query(r request) (Query, error) {
	values := r.URL.Query()
	for name := range values {
		if !slices.Contains([]string{"run", "tool", "state", "credential", "text", "since", "until", "before", "limit"}, name) {
			return Query{}, api.Errorf(api.CodeUsage, "%q is not something to select activity by", name)
		}
	}
	q := Query{
		Run: values.Get("run"), Tool: values.Get("tool"), State: values.Get("state"), Credential: values.Get("credential"), Text: values.Get("text"), Before: values.Get("before"),
		Limit: defaultLimit,
	}
	if q.State != "" && !slices.Contains(execution.States(), execution.State(q.State)) {
		return Query{}, api.Errorf(api.CodeUsage, "%q is no state", q.State).WithHint("states are %v", execution.States())
	}
	for name, into := range map[string]*time.Time{"since": &q.Since, "until": &q.Until} {
		text := values.Get(name)
		if text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return Query{}, api.Errorf(api.CodeUsage, "%q is not an RFC 3339 time", text)
		}
		*into = at
	}
	if text := values.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxLimit {
			return Query{}, api.Errorf(api.CodeUsage, "%q is not a limit between 1 and %d", text, maxLimit)
		}
		q.Limit = n
	}
	return q, nil
}

func (s *Server) activity(r request) (any, error) {
	q, err := query(r)
	if err != nil {
		return nil, err
	}
	list, err := s.list(q)
	if err != nil {
		return nil, err
	}
	records := make([]api.Record, 0, len(list))
	for _, x := range list {
		records = append(records, Record(x))
	}
	return records, nil
}

// list returns the listed executions as they stand now. A list may come from what is durable, and what nobody waits for, such as a delivery, becomes durable with something later:
// without this, a stream would begin with a state whose change it never sends.
func (s *Server) list(q Query) ([]execution.Execution, error) {
	list, err := s.cfg.Activity.List(q)
	if err != nil {
		return nil, err
	}
	current := list[:0]
	for _, x := range list {
		now, found, err := s.cfg.Activity.Execution(x.ID)
		if err != nil {
			return nil, err
		}
		if found {
			x = now
		}
		if q.State == "" || string(x.State) == q.State {
			current = append(current, x)
		}
	}
	return current, nil
}

// streamActivity sends what is there, oldest first, and then every change. The watch starts before the list is read: a change in between comes twice rather than never.
func (s *Server) streamActivity(r request, send func(any) error) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	changes := s.cfg.Activity.Watch(r.Context(), q)
	list, err := s.list(q)
	if err != nil {
		return err
	}
	for _, x := range slices.Backward(list) {
		if err := send(api.RecordEvent{Event: "recorded", Record: Record(x)}); err != nil {
			return err
		}
	}
	for x := range changes {
		if err := send(api.RecordEvent{Event: "changed", Record: Record(x)}); err != nil {
			return err
		}
	}
	return s.ended(r)
}

// refusalQuery takes of a query what a refused call has.
func refusalQuery(r request) (Query, error) {
	q, err := query(r)
	if err == nil && (q.State != "" || q.Credential != "" || q.Text != "" || q.Before != "") {
		return Query{}, api.Errorf(api.CodeUsage, "a refused call has no state, credential or id to select by; use run, tool, since, until and limit")
	}
	return q, err
}

func (s *Server) refusals(r request) (any, error) {
	q, err := refusalQuery(r)
	if err != nil {
		return nil, err
	}
	list, err := s.cfg.Activity.Refusals(q)
	if list == nil {
		list = []api.Refusal{}
	}
	return list, err
}

// streamRefusals sends what is there, oldest first, and then every new one. The watch starts before the list is read; what is in both comes once.
func (s *Server) streamRefusals(r request, send func(any) error) error {
	q, err := refusalQuery(r)
	if err != nil {
		return err
	}
	changes := s.cfg.Activity.WatchRefusals(r.Context(), q)
	list, err := s.cfg.Activity.Refusals(q)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, x := range slices.Backward(list) {
		seen[x.Call] = true
		if err := send(api.RefusalEvent{Event: "recorded", Refusal: x}); err != nil {
			return err
		}
	}
	for x := range changes {
		if seen[x.Call] {
			continue
		}
		if err := send(api.RefusalEvent{Event: "refused", Refusal: x}); err != nil {
			return err
		}
	}
	return s.ended(r)
}

func (s *Server) find(id string) (execution.Execution, error) {
	x, found, err := s.cfg.Activity.Execution(id)
	if err != nil {
		return x, err
	}
	if !found {
		return x, api.Errorf(api.CodeNotFound, "there is no execution %q", id).WithHint("spctl activity")
	}
	return x, nil
}

func (s *Server) execution(r request) (any, error) {
	x, err := s.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return Record(x), nil
}

func (s *Server) payload(r request) (any, error) {
	x, err := s.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	p, err := s.cfg.Activity.Payload(r.Context(), x.ID)
	if err != nil {
		return nil, err
	}
	out := api.Payload{ExecutionID: x.ID, Arguments: p.Arguments, Result: p.Result, Answer: p.Answer, Erased: p.Erased}
	if p.Place.Accepted > 0 {
		out.Place = &p.Place
	}
	if p.Effect != nil {
		e := Effect(*p.Effect)
		out.Effect = &e
	}
	return out, nil
}

func (s *Server) check(r request) (any, error) {
	x, err := s.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	got, err := s.cfg.Verdicts.Check(r.Context(), x.ID, r.by)
	if err != nil {
		return nil, err
	}
	if x, err = s.find(x.ID); err != nil {
		return nil, err
	}
	got.Record = Record(x)
	return got, nil
}

func (s *Server) settle(r request) (any, error) {
	var in api.Verdict
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	if len(in.Note) > maxReason {
		return nil, api.Errorf(api.CodeUsage, "the note has %d bytes, and %d are allowed", len(in.Note), maxReason)
	}
	x, err := s.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	if x.State != execution.Unknown && !x.Awaits() {
		return nil, api.Errorf(api.CodeConflict, "%s is %s; only an unknown outcome takes a verdict", x.ID, x.State).WithHint("spctl activity show %s", x.ID)
	}
	if err := s.cfg.Verdicts.Settle(r.Context(), x.ID, in, r.by); err != nil {
		return nil, err
	}
	if x, err = s.find(x.ID); err != nil {
		return nil, err
	}
	return Record(x), nil
}
