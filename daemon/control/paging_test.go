package control_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"singlepass.dev/daemon/api"
	"singlepass.dev/daemon/control/controltest"
)

func TestActivityIsReadPageByPageAndSearched(t *testing.T) {
	s := started(t)
	now := time.Now().Truncate(time.Second)
	for n := range 5 {
		x := controltest.Accepted(n, now.Add(time.Duration(n)*time.Minute))
		if n == 3 {
			x.Credential = "other"
		}
		s.Put(x)
	}
	get := func(query string) (ids []string) {
		status, body := s.do("GET", "/v1/activity?"+query, proofOf(passphrase), "")
		var list []api.Record
		if err := json.Unmarshal([]byte(body), &list); err != nil || status != 200 {
			t.Fatalf("%s: %d %s", query, status, body)
		}
		for _, r := range list {
			ids = append(ids, strings.TrimLeft(strings.TrimPrefix(r.ExecutionID, "act_"), "0"))
		}
		return ids
	}
	first := get("limit=2")
	second := get("limit=2&before=" + controltest.Accepted(3, now).ID)
	if !slices.Equal(first, []string{"4", "3"}) || !slices.Equal(second, []string{"2", "1"}) {
		t.Errorf("the pages are %v and %v", first, second)
	}
	if got := get("credential=other"); !slices.Equal(got, []string{"3"}) {
		t.Errorf("by credential: %v", got)
	}
	if got := get("text=" + controltest.Accepted(2, now).ID); !slices.Equal(got, []string{"2"}) {
		t.Errorf("by text: %v", got)
	}
	if got := get("until=" + now.Add(2*time.Minute).UTC().Format(time.RFC3339)); !slices.Equal(got, []string{"1", ""}) {
		t.Errorf("by time: %v", got)
	}
}

func TestAPayloadSaysWhereTheJournalHasIt(t *testing.T) {
	s := started(t)
	x := controltest.Unknown(1, time.Now())
	s.Put(x)
	_, body := s.do("GET", "/v1/activity/"+x.ID+"/payload", proofOf(passphrase), "")
	var p api.Payload
	if err := json.Unmarshal([]byte(body), &p); err != nil || p.Place == nil || p.Place.Accepted != 3 || p.Place.Last != 6 || !p.Place.Verified {
		t.Errorf("got %s", body)
	}
}
