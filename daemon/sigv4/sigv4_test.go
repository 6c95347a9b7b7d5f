package sigv4_test

import (
	"strings"
	"testing"
	"time"

	"singlepass.dev/daemon/sigv4"
)

// The keys are the examples of AWS's documentation; they open nothing.
var (
	suite   = sigv4.Keys{ID: []byte("AKIDEXAMPLE"), Secret: []byte("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")}
	example = sigv4.Keys{ID: []byte("AKIAIOSFODNN7EXAMPLE"), Secret: []byte("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")}
	token   = []byte("AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0K" +
		"PkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==")
)

func fields(list ...string) []sigv4.Field {
	var all []sigv4.Field
	for i := 0; i < len(list); i += 2 {
		all = append(all, sigv4.Field{Name: list[i], Value: []byte(list[i+1])})
	}
	return all
}

func value(all []sigv4.Field, name string) string {
	for _, f := range all {
		if f.Name == name {
			return string(f.Value)
		}
	}
	return ""
}

// The signatures are those of AWS's Signature Version 4 test suite.
func TestTheSignaturesOfThePublishedSuite(t *testing.T) {
	const vanilla = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
	withToken := suite
	withToken.Token = token
	for name, c := range map[string]struct {
		keys                         sigv4.Keys
		method, target, body, signed string
		header                       []sigv4.Field
		signature                    string
	}{
		"get-vanilla":                           {suite, "GET", "/", "", "", nil, vanilla},
		"get-vanilla-empty-query-key":           {suite, "GET", "/?Param1=value1", "", "", nil, "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"},
		"get-vanilla-query-order-key-case":      {suite, "GET", "/?Param2=value2&Param1=value1", "", "", nil, "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
		"get-utf8":                              {suite, "GET", "/ሴ", "", "", nil, "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
		"get-space":                             {suite, "GET", "/example space/", "", "", nil, "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"},
		"get-relative":                          {suite, "GET", "/example/..", "", "", nil, vanilla},
		"get-relative-relative":                 {suite, "GET", "/example1/example2/../..", "", "", nil, vanilla},
		"get-slash":                             {suite, "GET", "//", "", "", nil, vanilla},
		"get-slashes":                           {suite, "GET", "//example//", "", "", nil, "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84"},
		"get-slash-pointless-dot":               {suite, "GET", "/./example", "", "", nil, "ef75d96142cf21edca26f06005da7988e4f8dc83a165a80865db7089db637ec5"},
		"get-header-key-duplicate":              {suite, "GET", "/", "", "my-header1;", fields("My-Header1", "value2", "My-Header1", "value2", "My-Header1", "value1"), "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"},
		"get-header-value-order":                {suite, "GET", "/", "", "my-header1;", fields("My-Header1", "value4", "My-Header1", "value1", "My-Header1", "value3", "My-Header1", "value2"), "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01"},
		"get-header-value-trim":                 {suite, "GET", "/", "", "my-header1;my-header2;", fields("My-Header1", " value1", "My-Header2", ` "a   b   c"`), "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
		"post-vanilla":                          {suite, "POST", "/", "", "", nil, "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
		"post-vanilla-empty-query-value":        {suite, "POST", "/?Param1=value1", "", "", nil, "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11"},
		"post-header-key-sort":                  {suite, "POST", "/", "", "my-header1;", fields("My-Header1", "value1"), "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c"},
		"post-header-value-case":                {suite, "POST", "/", "", "my-header1;", fields("My-Header1", "VALUE1"), "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d"},
		"post-x-www-form-urlencoded":            {suite, "POST", "/", "Param1=value1", "content-type;", fields("Content-Type", "application/x-www-form-urlencoded", "Content-Length", "13"), "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
		"post-x-www-form-urlencoded-parameters": {suite, "POST", "/", "Param1=value1", "content-type;", fields("Content-Type", "application/x-www-form-urlencoded; charset=utf8", "Content-Length", "13"), "1a72ec8f64bd914b0e42e42607c7fbce7fb2c7465f63e3092b3b0d39fa77a6fe"},
		"post-sts-header-before":                {withToken, "POST", "/", "", "", nil, "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"},
	} {
		got, err := sigv4.Sign(sigv4.Request{
			Method: c.method, Host: "example.amazonaws.com", Target: c.target, Header: c.header, Body: []byte(c.body), Region: "us-east-1", Service: "service",
			Time: time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC),
		}, c.keys)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		signed := "host;" + c.signed + "x-amz-date" // in the order of their names
		if c.signed == "content-type;" {
			signed = c.signed + "host;x-amz-date"
		}
		if c.keys.Token != nil {
			signed += ";x-amz-security-token"
		}
		want := "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=" + signed + ", Signature=" + c.signature
		if a := value(got, "Authorization"); a != want || value(got, "X-Amz-Date") != "20150830T123600Z" || value(got, "X-Amz-Security-Token") != string(c.keys.Token) || value(got, "X-Amz-Content-Sha256") != "" {
			t.Errorf("%s:\n%s\n%s", name, a, want)
		}
	}
}

// The examples are those of the Amazon S3 API reference, "Signature Calculations for the Authorization Header".
func TestTheExamplesOfTheS3Reference(t *testing.T) {
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for name, c := range map[string]struct {
		method, target, body, signed, digest, signature string
		header                                          []sigv4.Field
	}{
		"get object":    {"GET", "/test.txt", "", "host;range;x-amz-content-sha256;x-amz-date", empty, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41", fields("Range", "bytes=0-9")},
		"put object":    {"PUT", "/test%24file.text", "Welcome to Amazon S3.", "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072", "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd", fields("Date", "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class", "REDUCED_REDUNDANCY")},
		"get lifecycle": {"GET", "/?lifecycle", "", "host;x-amz-content-sha256;x-amz-date", empty, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543", nil},
		"list objects":  {"GET", "/?max-keys=2&prefix=J", "", "host;x-amz-content-sha256;x-amz-date", empty, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7", nil},
	} {
		got, err := sigv4.Sign(sigv4.Request{
			Method: c.method, Host: "examplebucket.s3.amazonaws.com", Target: c.target, Header: c.header, Body: []byte(c.body), Region: "us-east-1", Service: "s3",
			Time: time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC),
		}, example)
		want := "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, SignedHeaders=" + c.signed + ", Signature=" + c.signature
		if err != nil || value(got, "Authorization") != want || value(got, "X-Amz-Content-Sha256") != c.digest {
			t.Errorf("%s: %v\n%s\n%s", name, err, value(got, "Authorization"), want)
		}
	}
}

func TestAPathThatIsEncodedIsSignedAsItIsSent(t *testing.T) {
	sign := func(service, target string) string {
		got, err := sigv4.Sign(sigv4.Request{Method: "GET", Host: "h", Target: target, Region: "r", Service: service, Time: time.Unix(0, 0)}, suite)
		if err != nil {
			t.Fatal(err)
		}
		return value(got, "Authorization")
	}
	if sign("lambda", "/a%3Ab") == sign("lambda", "/a:b") || sign("s3", "/a%3Ab") == sign("s3", "/a:b") {
		t.Error("two different paths have one signature")
	}
	if sign("lambda", "/?a=b%20c") != sign("lambda", "/?a=b+c") {
		t.Error("a plus in a query is a space (HTML form encoding)")
	}
}

func TestWhatCannotBeSignedIsRefused(t *testing.T) {
	good := sigv4.Request{Method: "GET", Host: "h", Target: "/", Region: "r", Service: "s"}
	for name, c := range map[string]struct {
		change func(*sigv4.Request)
		keys   sigv4.Keys
	}{
		"no region":  {func(r *sigv4.Request) { r.Region = "" }, suite},
		"no service": {func(r *sigv4.Request) { r.Service = "" }, suite},
		"no host":    {func(r *sigv4.Request) { r.Host = "" }, suite},
		"no id":      {func(*sigv4.Request) {}, sigv4.Keys{Secret: suite.Secret}},
		"no secret":  {func(*sigv4.Request) {}, sigv4.Keys{ID: suite.ID}},
		"bad query":  {func(r *sigv4.Request) { r.Target = "/?a=%zz" }, suite},
	} {
		r := good
		c.change(&r)
		if got, err := sigv4.Sign(r, c.keys); err == nil || strings.Contains(err.Error(), "EXAMPLE") {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
