package httpchan

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"

	"singlepass.dev/daemon/scrub"
)

// mostUnpacked bounds what is unpacked to look for the secret in it.
const mostUnpacked = 64 << 20

// unseen says why the body could hold the secret where the scrubber does not see it, or "". Requests ask for no coding, but targets that store what they serve in a packed form send it so all
// the same, and the agent can unpack it. What cannot be looked through is withheld.
func (a *answer) unseen(s *scrub.Scrubber) string {
	if s == nil || len(a.body) == 0 {
		return ""
	}
	var codings []string
	for coding := range strings.SplitSeq(strings.Join(a.header.Values("Content-Encoding"), ","), ",") {
		if coding = strings.ToLower(strings.TrimSpace(coding)); coding != "" && coding != "identity" {
			codings = append(codings, coding)
		}
	}
	switch {
	case len(codings) == 1 && (codings[0] == "gzip" || codings[0] == "x-gzip"):
		if why := unseenInGzip(a.body, s); why != "" {
			return why
		}
	case len(codings) > 0:
		return "it is packed in a way that cannot be looked through, and the credential could be in it"
	}
	// UTF-16 and UTF-32 write ASCII, which a credential mostly is, with zeros between.
	if bytes.IndexByte(a.body, 0) >= 0 {
		if _, hit := s.Bytes(bytes.ReplaceAll(a.body, []byte{0}, nil)); hit {
			return "the credential is in it"
		}
	}
	return ""
}

func unseenInGzip(body []byte, s *scrub.Scrubber) string {
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err == nil {
		var plain []byte
		if plain, err = io.ReadAll(io.LimitReader(z, mostUnpacked+1)); err == nil && len(plain) <= mostUnpacked {
			if _, hit := s.Bytes(plain); hit {
				return "the credential is in it"
			}
			return ""
		}
	}
	return "it is packed and cannot be unpacked, and the credential could be in it"
}
