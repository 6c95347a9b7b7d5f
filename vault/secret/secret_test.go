package secret_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"singlepass.dev/vault/secret"
)

const canary = "canary-not-a-secret-7f3a"

func value(t *testing.T) *secret.Bytes {
	t.Helper()
	s := secret.New([]byte(canary))
	t.Cleanup(s.Wipe)
	return s
}

func read(t *testing.T, s *secret.Bytes) string {
	t.Helper()
	var got string
	if err := s.Use(func(b []byte) error { got = string(b); return nil }); err != nil {
		t.Fatal(err)
	}
	return got
}

// leaks reports whether text holds the canary in any form that a formatting verb could give it.
func leaks(text string) bool {
	for _, form := range []string{
		canary,
		fmt.Sprintf("%x", canary),
		fmt.Sprintf("%X", canary),
		fmt.Sprintf("% x", canary),
		strings.Trim(fmt.Sprint([]byte(canary)), "[]"),
		strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", []byte(canary)), "[]byte{"), "}"),
	} {
		if strings.Contains(text, form) {
			return true
		}
	}
	return false
}

func TestNoFormattingVerbShowsASecret(t *testing.T) {
	s := value(t)
	type public struct{ Secret *secret.Bytes }
	type private struct{ secret *secret.Bytes }
	type nested struct {
		In  map[string]*secret.Bytes
		Any any
		pub public
	}
	holders := map[string]any{
		"pointer": s,
		"public":  public{s}, "public pointer": &public{s},
		"private": private{s}, "private pointer": &private{s},
		"nested": nested{map[string]*secret.Bytes{"k": s}, s, public{s}},
		"slice":  []*secret.Bytes{s},
		"value":  reflect.ValueOf(s).Elem(),
	}
	for name, holder := range holders {
		for verb := rune(' '); verb <= '~'; verb++ {
			for _, flags := range []string{"", "+", "#", "-", " ", "0", "+#", "# ", "99", ".5"} {
				if text := fmt.Sprintf("%"+flags+string(verb), holder); leaks(text) {
					t.Errorf("%s with %%%s%c shows the secret: %s", name, flags, verb, text)
				}
			}
		}
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		if got := fmt.Sprintf(format, s); got != "[secret]" {
			t.Errorf("%s gives %q", format, got)
		}
	}
}

func TestReflectionFindsNoBytes(t *testing.T) {
	var walk func(v reflect.Value, path string, seen map[uintptr]bool)
	walk = func(v reflect.Value, path string, seen map[uintptr]bool) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() && !seen[v.Pointer()] {
				seen[v.Pointer()] = true
				walk(v.Elem(), path+"*", seen)
			}
		case reflect.Interface:
			walk(v.Elem(), path, seen)
		case reflect.Struct:
			for i := range v.NumField() {
				walk(v.Field(i), path+"."+v.Type().Field(i).Name, seen)
			}
		case reflect.Slice, reflect.Array:
			if v.Type().Elem().Kind() == reflect.Uint8 && v.Kind() == reflect.Slice && bytes.Contains(v.Bytes(), []byte(canary)) {
				t.Errorf("reflection reaches the bytes at %s", path)
			}
		}
	}
	walk(reflect.ValueOf(value(t)), "", map[uintptr]bool{})
}

func TestNoEncodingShowsASecret(t *testing.T) {
	s := value(t)
	b, err := json.Marshal(map[string]any{"value": s, "list": []any{s}})
	if err != nil || string(b) != `{"list":["[secret]"],"value":"[secret]"}` {
		t.Errorf("json: %s, %v", b, err)
	}
	if text, err := s.MarshalText(); err != nil || string(text) != "[secret]" {
		t.Errorf("text: %s, %v", text, err)
	}
	for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
		"text": func(w *bytes.Buffer) slog.Handler { return slog.NewTextHandler(w, nil) },
		"json": func(w *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(w, nil) },
	} {
		var w bytes.Buffer
		slog.New(handler(&w)).Info("x", "value", s, "struct", struct{ V *secret.Bytes }{s}, "error", fmt.Errorf("about %v: %w", s, errors.New("y")))
		if leaks(w.String()) || !strings.Contains(w.String(), "[secret]") {
			t.Errorf("slog %s: %s", name, w.String())
		}
	}
}

func TestNewTakesItsArgumentOver(t *testing.T) {
	b := []byte(canary)
	s := secret.New(b)
	defer s.Wipe()
	if !bytes.Equal(b, make([]byte, len(b))) {
		t.Error("the argument still holds the secret")
	}
	if got := read(t, s); got != canary {
		t.Errorf("read back %q", got)
	}
}

func TestAfterWipeUseAndCloneFail(t *testing.T) {
	s := value(t)
	c, err := s.Clone()
	if err != nil {
		t.Fatal(err)
	}
	s.Wipe()
	s.Wipe()
	if err := s.Use(func([]byte) error { t.Error("called"); return nil }); !errors.Is(err, secret.ErrWiped) {
		t.Errorf("Use: %v", err)
	}
	if _, err := s.Clone(); !errors.Is(err, secret.ErrWiped) {
		t.Errorf("Clone: %v", err)
	}
	if s.Len() != 0 || s.Equal(s) {
		t.Error("a wiped secret has a length or equals itself")
	}
	if read(t, c) != canary {
		t.Error("wiping the original changed the clone")
	}
	c.Wipe()
}

func TestANilOrZeroSecretBehavesLikeAWipedOne(t *testing.T) {
	for _, s := range []*secret.Bytes{nil, {}} {
		s.Wipe()
		if err := s.Use(func([]byte) error { return nil }); !errors.Is(err, secret.ErrWiped) {
			t.Errorf("Use: %v", err)
		}
		if s.Len() != 0 || s.Equal(value(t)) || value(t).Equal(s) {
			t.Error("it has a length or equals something")
		}
		if got := fmt.Sprint(s); got != "[secret]" && got != "<nil>" {
			t.Errorf("printed %q", got)
		}
		slog.New(slog.NewTextHandler(&bytes.Buffer{}, nil)).Info("x", "s", s)
	}
}

func TestEqualComparesContent(t *testing.T) {
	a, same, other, short, empty := value(t), value(t), secret.New([]byte("canary-not-a-secret-7f3b")), secret.New([]byte("c")), secret.New(nil)
	if !a.Equal(same) || !a.Equal(a) || !empty.Equal(secret.New([]byte{})) {
		t.Error("equal values differ")
	}
	if a.Equal(other) || a.Equal(short) || a.Equal(empty) {
		t.Error("different values are equal")
	}
}

func TestWipeWaitsForRunningUsesAndStopsNewOnes(t *testing.T) {
	s := value(t)
	inside, leave, wiped := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var after string
	var nested error
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = s.Use(func(b []byte) error {
			close(inside)
			<-leave
			for nested == nil { // until Wipe has begun; a nested Use must then fail, not deadlock
				nested = s.Use(func([]byte) error { return nil })
				runtime.Gosched()
			}
			after = string(b)
			return nil
		})
	})
	<-inside
	wg.Go(func() { s.Wipe(); close(wiped) })
	select {
	case <-wiped:
		t.Fatal("Wipe did not wait")
	default:
	}
	close(leave)
	wg.Wait()
	if after != canary || !errors.Is(nested, secret.ErrWiped) {
		t.Errorf("during Wipe: read %q, nested Use: %v", after, nested)
	}
}

func TestAPanicInUseReleasesTheSecret(t *testing.T) {
	s := value(t)
	func() {
		defer func() { _ = recover() }()
		_ = s.Use(func([]byte) error { panic("x") })
	}()
	s.Wipe() // would wait forever
}

func TestManyGoroutinesUseCloneAndWipe(t *testing.T) {
	for range 50 {
		s := value(t)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for {
					c, err := s.Clone()
					if err != nil {
						return
					}
					if err := c.Use(func(b []byte) error {
						if string(b) != canary {
							return errors.New("torn")
						}
						return nil
					}); err != nil {
						t.Error(err)
					}
					c.Wipe()
				}
			})
		}
		wg.Go(s.Wipe)
		wg.Wait()
	}
}
