package chain

import "encoding/binary"

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

// isHex tells whether text is made of 0-9 and a-f. It looks at eight bytes at a time: a byte c below 0x80
// has the high bit in c+0x80-x if and only if c >= x.
func isHex(text []byte) bool {
	const each = 0x0101010101010101
	for len(text) >= 8 {
		x := binary.LittleEndian.Uint64(text)
		if x&(each*0x80) != 0 {
			return false
		}
		digit := (x + each*(0x80-'0')) &^ (x + each*(0x80-'9'-1))
		letter := (x + each*(0x80-'a')) &^ (x + each*(0x80-'f'-1))
		if (digit|letter)&(each*0x80) != each*0x80 {
			return false
		}
		text = text[8:]
	}
	for _, c := range text {
		if !hexValue[c] {
			return false
		}
	}
	return true
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

// hexPair is the two digits of each byte, so that two are written at a time.
var hexPair = func() (p [256]uint16) {
	const digits = "0123456789abcdef"
	for i := range p {
		p[i] = uint16(digits[i>>4]) | uint16(digits[i&15])<<8
	}
	return p
}()

// hexText is h as it stands in a line.
func hexText(h *Hash) (text [hashText]byte) {
	for i, c := range h {
		binary.LittleEndian.PutUint16(text[2*i:], hexPair[c])
	}
	return text
}
