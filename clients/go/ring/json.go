package ring

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	maxInteger = 1<<53 - 1 // the largest integer that RFC 8785 can carry unchanged
	maxDepth   = 500
)

// The standard library's decoder takes duplicate keys, fractions and broken surrogates in silence. A snapshot with any
// of them must be refused, so this reader is strict; its values are nil, bool, int64, string, []any and map[string]any.
type reader struct {
	text      string
	at        int
	depth     int
	surrogate bool // half a surrogate pair was read: the text has no UTF-8 form
}

func parse(body []byte) (any, bool, error) {
	if !utf8.Valid(body) {
		return nil, false, refuse("not-json", "the snapshot is not UTF-8")
	}
	r := &reader{text: string(body)}
	value, err := r.value()
	if err != nil {
		return nil, false, err
	}
	if r.space(); r.at < len(r.text) {
		return nil, false, r.broken()
	}
	return value, r.surrogate, nil
}

func (r *reader) broken() error {
	return refuse("not-json", "the snapshot is not JSON at byte %d", r.at)
}

func (r *reader) space() {
	for r.at < len(r.text) && strings.IndexByte(" \t\n\r", r.text[r.at]) >= 0 {
		r.at++
	}
}

func (r *reader) takes(word string) bool {
	if strings.HasPrefix(r.text[r.at:], word) {
		r.at += len(word)
		return true
	}
	return false
}

func (r *reader) value() (any, error) {
	r.space()
	if r.at == len(r.text) {
		return nil, r.broken()
	}
	switch c := r.text[r.at]; {
	case c == '{' || c == '[':
		if r.depth++; r.depth > maxDepth {
			return nil, r.broken()
		}
		defer func() { r.depth-- }()
		r.at++
		if c == '{' {
			return r.object()
		}
		return r.list()
	case c == '"':
		r.at++
		return r.string()
	case r.takes("null"):
		return nil, nil
	case r.takes("true"):
		return true, nil
	case r.takes("false"):
		return false, nil
	}
	return r.number()
}

func (r *reader) object() (any, error) {
	found := map[string]any{}
	if r.space(); r.takes("}") {
		return found, nil
	}
	twice := ""
	for {
		if r.space(); !r.takes(`"`) {
			return nil, r.broken()
		}
		key, err := r.string()
		if err != nil {
			return nil, err
		}
		if r.space(); !r.takes(":") {
			return nil, r.broken()
		}
		value, err := r.value()
		if err != nil {
			return nil, err
		}
		if _, there := found[key]; there {
			twice = key
		}
		found[key] = value
		r.space()
		if r.takes("}") {
			break
		}
		if !r.takes(",") {
			return nil, r.broken()
		}
	}
	if len(twice) > 0 {
		return nil, refuse("duplicate-key", "the snapshot has the key %q twice in one object", twice)
	}
	return found, nil
}

func (r *reader) list() (any, error) {
	found := []any{}
	if r.space(); r.takes("]") {
		return found, nil
	}
	for {
		value, err := r.value()
		if err != nil {
			return nil, err
		}
		found = append(found, value)
		r.space()
		if r.takes("]") {
			return found, nil
		}
		if !r.takes(",") {
			return nil, r.broken()
		}
	}
}

func (r *reader) string() (string, error) {
	start := r.at
	for r.at < len(r.text) && r.text[r.at] != '"' && r.text[r.at] != '\\' && r.text[r.at] >= ' ' {
		r.at++
	}
	if r.takes(`"`) {
		return r.text[start : r.at-1], nil
	}
	var out strings.Builder
	out.WriteString(r.text[start:r.at])
	for r.at < len(r.text) {
		c := r.text[r.at]
		switch {
		case c == '"':
			r.at++
			return out.String(), nil
		case c < ' ':
			return "", r.broken()
		case c != '\\':
			out.WriteByte(c)
			r.at++
			continue
		}
		if r.at+1 == len(r.text) {
			return "", r.broken()
		}
		escape := r.text[r.at+1]
		r.at += 2
		if i := strings.IndexByte(`"\/bfnrt`, escape); i >= 0 {
			out.WriteByte("\"\\/\b\f\n\r\t"[i])
			continue
		}
		unit, ok := r.unit()
		if escape != 'u' || !ok {
			return "", r.broken()
		}
		out.WriteRune(r.paired(unit))
	}
	return "", r.broken()
}

// unit reads four hex digits.
func (r *reader) unit() (rune, bool) {
	if r.at+4 > len(r.text) {
		return 0, false
	}
	digits := r.text[r.at : r.at+4]
	for _, c := range []byte(digits) {
		if !strings.ContainsRune("0123456789abcdefABCDEF", rune(c)) {
			return 0, false
		}
	}
	value, err := strconv.ParseUint(digits, 16, 16)
	r.at += 4
	return rune(value), err == nil
}

// paired is the rune of a UTF-16 unit, with the unit that follows it where they are a pair.
func (r *reader) paired(unit rune) rune {
	if !utf16.IsSurrogate(unit) {
		return unit
	}
	before := r.at
	if r.takes(`\u`) {
		if second, ok := r.unit(); ok {
			if pair := utf16.DecodeRune(unit, second); pair != utf8.RuneError {
				return pair
			}
		}
	}
	r.at, r.surrogate = before, true
	return utf8.RuneError
}

func (r *reader) number() (any, error) {
	for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
		if r.takes(word) {
			return nil, refuse("not-integer", "the snapshot has the number %s; all numbers must be integers", word)
		}
	}
	start := r.at
	r.takes("-")
	digits := r.digits()
	if digits == 0 || (digits > 1 && r.text[r.at-digits] == '0') {
		return nil, r.broken()
	}
	whole := r.at
	if fraction := r.at; r.takes(".") && r.digits() == 0 {
		r.at = fraction
	}
	if exponent := r.at; r.takes("e") || r.takes("E") {
		if !r.takes("+") {
			r.takes("-")
		}
		if r.digits() == 0 {
			r.at = exponent
		}
	}
	if r.at > whole {
		return nil, refuse("not-integer", "the snapshot has the number %.40s; all numbers must be integers", r.text[start:r.at])
	}
	value, err := strconv.ParseInt(r.text[start:whole], 10, 64)
	if err != nil || value > maxInteger || value < -maxInteger {
		return nil, refuse("out-of-range", "the snapshot has the number %.40s, beyond 2^53 - 1", r.text[start:whole])
	}
	return value, nil
}

func (r *reader) digits() int {
	start := r.at
	for r.at < len(r.text) && '0' <= r.text[r.at] && r.text[r.at] <= '9' {
		r.at++
	}
	return r.at - start
}

// canonical writes RFC 8785: keys by UTF-16 code units, no spaces, the shortest escapes.
func canonical(out *strings.Builder, value any) {
	switch v := value.(type) {
	case nil:
		out.WriteString("null")
	case bool:
		out.WriteString(strconv.FormatBool(v))
	case int64:
		out.WriteString(strconv.FormatInt(v, 10))
	case string:
		quote(out, v)
	case []any:
		out.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				out.WriteByte(',')
			}
			canonical(out, item)
		}
		out.WriteByte(']')
	case map[string]any:
		keys := make([]string, 0, len(v))
		for key := range v {
			keys = append(keys, key)
		}
		slices.SortFunc(keys, func(a, b string) int {
			return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
		})
		out.WriteByte('{')
		for i, key := range keys {
			if i > 0 {
				out.WriteByte(',')
			}
			quote(out, key)
			out.WriteByte(':')
			canonical(out, v[key])
		}
		out.WriteByte('}')
	}
}

func quote(out *strings.Builder, text string) {
	out.WriteByte('"')
	for i := range len(text) {
		c := text[i]
		switch short := strings.IndexByte("\"\\\b\f\n\r\t", c); {
		case short >= 0:
			out.WriteByte('\\')
			out.WriteByte(`"\bfnrt`[short])
		case c < ' ':
			fmt.Fprintf(out, `\u%04x`, c)
		default:
			out.WriteByte(c)
		}
	}
	out.WriteByte('"')
}
