package chain

func cut(b []byte, prefix string) ([]byte, bool) {
	if len(b) < len(prefix) || string(b[:len(prefix)]) != prefix {
		return nil, false
	}
	return b[len(prefix):], true
}

func cutEnd(b []byte, suffix string) ([]byte, bool) {
	n := len(b) - len(suffix)
	if n < 0 || string(b[n:]) != suffix {
		return nil, false
	}
	return b[:n], true
}

// hexValue marks the lower-case hexadecimal digits, isSealed what may stand in "sealed".
var hexValue, isSealed = func() (h, s [256]bool) {
	for c := '0'; c <= '9'; c++ {
		h[c], s[c] = true, true
	}
	for c := 'a'; c <= 'f'; c++ {
		h[c] = true
	}
	for c := 'a'; c <= 'z'; c++ {
		s[c], s[c-'a'+'A'] = true, true
	}
	for _, c := range "+/=-" {
		s[c] = true
	}
	return h, s
}()

func isHex(text []byte) bool {
	ok := true
	for _, c := range text {
		ok = ok && hexValue[c]
	}
	return ok
}

func kindLen(b []byte) int {
	n := 0
	for n < len(b) && n < 64 && (b[n]-'a' < 26 || b[n]-'0' < 10 || b[n] == '_') {
		n++
	}
	return n
}

// timeLen returns the length of the time at the start of b, or 0 when it is not what AppendLine writes.
func timeLen(b []byte) int {
	const layout = "0000-00-00T00:00:00"
	if len(b) < len(layout)+1 {
		return 0
	}
	for i := range len(layout) {
		if c := layout[i]; c == '0' && b[i]-'0' > 9 || c != '0' && b[i] != c {
			return 0
		}
	}
	two := func(i int) int { return int(b[i]-'0')*10 + int(b[i+1]-'0') }
	year, month, day := two(0)*100+two(2), two(5), two(8)
	if month < 1 || month > 12 || day < 1 || day > daysIn(year, month) || two(11) > 23 || two(14) > 59 || two(17) > 59 {
		return 0
	}
	n := len(layout)
	if b[n] == '.' {
		n++
		from := n
		for n < len(b) && b[n]-'0' <= 9 {
			n++
		}
		if n == from || n > from+9 || b[n-1] == '0' {
			return 0
		}
	}
	if n >= len(b) || b[n] != 'Z' {
		return 0
	}
	return n + 1
}

func daysIn(year, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}
