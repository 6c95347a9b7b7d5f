// Package sigv4 signs an HTTP request as AWS Signature Version 4 wants it ("Create a signed AWS API request", AWS Identity and Access Management user guide).
//
// Promises: what is signed is the request as it is sent: its target, its fields and its body, byte for byte. Nothing is added to it but the fields that Sign returns. The secret key is
// used and not kept; of what is derived from it, the signature alone leaves.
//
// Non-promises: no presigned URLs, no chunked payloads, no SigV4A. The package freezes no format.
package sigv4

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
)

// Keys are what signs. All three come from the same set; Token is nil for long-lived keys.
type Keys struct{ ID, Secret, Token []byte }

// Field is one header field.
type Field struct {
	Name  string
	Value []byte
}

// Request is what is signed.
type Request struct {
	Method  string
	Host    string // as in the Host field
	Target  string // path and query, exactly as they are sent
	Header  []Field
	Body    []byte
	Region  string
	Service string
	Time    time.Time
}

// Added are the fields that Sign may return, in lower case: a request has none of them before.
var Added = []string{"authorization", "x-amz-date", "x-amz-security-token", "x-amz-content-sha256"}

// unsigned are fields that proxies may change on the way, or that belong to the connection.
var unsigned = []string{"connection", "content-length", "user-agent", "accept-encoding", "expect", "x-amzn-trace-id", "transfer-encoding", "te", "keep-alive", "upgrade", "trailer"}

const algorithm = "AWS4-HMAC-SHA256"

// Sign returns the fields that make the request a signed one. The caller wipes the values when they are sent.
func Sign(r Request, k Keys) ([]Field, error) {
	if len(k.ID) == 0 || len(k.Secret) == 0 || r.Region == "" || r.Service == "" || r.Host == "" {
		return nil, errors.New("signing for AWS needs a key id, a secret key, a region, a service and a host")
	}
	stamp := r.Time.UTC().Format("20060102T150405Z")
	payload := sha256.Sum256(r.Body)
	digest := hex.EncodeToString(payload[:])

	added := []Field{{"X-Amz-Date", []byte(stamp)}}
	if isS3(r.Service) {
		added = append(added, Field{"X-Amz-Content-Sha256", []byte(digest)})
	}
	if len(k.Token) > 0 {
		added = append(added, Field{"X-Amz-Security-Token", bytes.Clone(k.Token)})
	}
	headers, names := canonicalHeaders(append(append([]Field{{"Host", []byte(r.Host)}}, added...), r.Header...))
	defer clear(headers)
	target, query, _ := strings.Cut(r.Target, "?")
	canonicalQuery, err := canonicalQuery(query)
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%s\n", r.Method, canonicalPath(target, r.Service), canonicalQuery)
	h.Write(headers)
	fmt.Fprintf(h, "\n%s\n%s", names, digest)

	scope := stamp[:8] + "/" + r.Region + "/" + r.Service + "/aws4_request"
	toSign := algorithm + "\n" + stamp + "\n" + scope + "\n" + hex.EncodeToString(h.Sum(nil))
	key := append([]byte("AWS4"), k.Secret...)
	for _, part := range []string{stamp[:8], r.Region, r.Service, "aws4_request"} {
		next := sum(key, part)
		clear(key)
		key = next
	}
	signature := hex.EncodeToString(sum(key, toSign))
	clear(key)
	value := fmt.Appendf(nil, "%s Credential=%s/%s, SignedHeaders=%s, Signature=%s", algorithm, k.ID, scope, names, signature)
	return append(added, Field{"Authorization", value}), nil
}

func sum(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// isS3: S3 wants the payload's digest in a field and takes paths as they are; every other service wants them encoded once more.
func isS3(service string) bool {
	return service == "s3" || strings.HasPrefix(service, "s3-") || service == "s3express"
}

func canonicalPath(p, service string) string {
	if isS3(service) {
		if p == "" {
			return "/"
		}
		return p
	}
	clean := path.Clean("/" + p)
	if clean != "/" && strings.HasSuffix(p, "/") {
		clean += "/"
	}
	return string(encode(nil, clean, true))
}

func canonicalQuery(raw string) (string, error) {
	if raw == "" {
		return "", nil
	}
	type pair struct{ name, value string }
	var pairs []pair
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		n, err1 := url.QueryUnescape(name)
		v, err2 := url.QueryUnescape(value)
		if err1 != nil || err2 != nil {
			return "", errors.New("the query cannot be signed: it has a percent sign that is no escape")
		}
		pairs = append(pairs, pair{string(encode(nil, n, false)), string(encode(nil, v, false))})
	}
	slices.SortStableFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.value, b.value))
	})
	var b strings.Builder
	for i, p := range pairs {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(p.name + "=" + p.value)
	}
	return b.String(), nil
}

// canonicalHeaders returns the fields as they are signed, which may hold a session token, and the list of their names.
func canonicalHeaders(fields []Field) (lines []byte, names string) {
	values := map[string][][]byte{}
	for _, f := range fields {
		name := strings.ToLower(f.Name)
		if !slices.Contains(unsigned, name) {
			values[name] = append(values[name], f.Value)
		}
	}
	var sorted []string
	size := 0
	for name, all := range values {
		sorted = append(sorted, name)
		size += len(name) + 2
		for _, v := range all {
			size += len(v) + 1
		}
	}
	slices.Sort(sorted)
	lines = make([]byte, 0, size)
	for _, name := range sorted {
		lines = append(append(lines, name...), ':')
		for i, v := range values[name] {
			if i > 0 {
				lines = append(lines, ',')
			}
			lines = appendTrimmed(lines, v)
		}
		lines = append(lines, '\n')
	}
	return lines, strings.Join(sorted, ";")
}

// appendTrimmed adds v without outer spaces, and with runs of spaces as one.
func appendTrimmed(b, v []byte) []byte {
	v = bytes.Trim(v, " \t\r\n")
	space := false
	for _, c := range v {
		if c == ' ' {
			space = true
			continue
		}
		if space {
			b, space = append(b, ' '), false
		}
		b = append(b, c)
	}
	return b
}

// encode is AWS's UriEncode: RFC 3986, upper-case hexadecimal, a space as %20.
func encode(b []byte, s string, slash bool) []byte {
	for _, c := range []byte(s) {
		if c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '-' || c == '.' || c == '_' || c == '~' || slash && c == '/' {
			b = append(b, c)
		} else {
			b = append(b, '%', "0123456789ABCDEF"[c>>4], "0123456789ABCDEF"[c&15])
		}
	}
	return b
}
