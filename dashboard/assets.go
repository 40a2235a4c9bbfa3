package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

//go:embed pages assets
var files embed.FS

// assets are the files of the pages by name. Scripts of others are in assets/vendor, with their
// licenses and checksums.
var assets = sync.OnceValue(readAssets)

type asset struct {
	content []byte
	kind    string
	// version changes with the content, so that browsers may keep the file.
	version string
}

func readAssets() map[string]asset {
	all := map[string]asset{}
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	err := fs.WalkDir(files, "assets", func(name string, _ fs.DirEntry, err error) error {
		kind := kinds[path.Ext(name)]
		if err != nil || kind == "" {
			return err
		}
		content, err := files.ReadFile(name)
		sum := sha256.Sum256(content)
		all[path.Base(name)] = asset{content, kind, hex.EncodeToString(sum[:6])}
		return err
	})
	if err != nil {
		panic(err) // they are embedded
	}
	return all
}

// templates are the pages, each with the layout. They are read when they are first used: other
// commands of the program must not pay for them when they start.
var templates = sync.OnceValue(readTemplates)

func readTemplates() map[string]*template.Template {
	layout := template.Must(template.New("").Funcs(functions).ParseFS(files, "pages/layout.html", "pages/parts/*.html"))
	all := map[string]*template.Template{}
	names, err := fs.Glob(files, "pages/*.html")
	if err != nil {
		panic(err) // the pattern is constant
	}
	for _, name := range names {
		all[strings.TrimSuffix(path.Base(name), ".html")] = template.Must(template.Must(layout.Clone()).ParseFS(files, name))
	}
	return all
}

var functions = template.FuncMap{
	"asset": func(base, name string) string { return base + "/assets/" + name + "?v=" + assets()[name].version },
	"link":  link,
	"num":   number[int64],
	"count": number[int],
	"rate":  rate,
	"dur":   duration,
	"ms":    func(ms float64) string { return duration(time.Duration(ms * float64(time.Millisecond))) },
	"time":  timestamp,
	"field": func(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05") },
	"bytes": size,
	"json":  pretty,
	"part":  func(f float64) string { return strconv.FormatFloat(100*f, 'f', 0, 64) + " %" },
	"text":  func(v any) string { return fmt.Sprint(v) },
	"line":  line,
	"lower": strings.ToLower,
	"kinds": filterText,

	// They bring the base of links into templates of a part of a page.
	"row": func(base string, row queueRow, charts, totals bool) any {
		return struct {
			Base   string
			Row    queueRow
			Charts bool
			Totals bool
		}{base, row, charts, totals}
	},
	"rows": func(base string, rows []queueRow, totals bool) any {
		return struct {
			Base   string
			Rows   []queueRow
			Totals bool
		}{base, rows, totals}
	},
	"group": func(head string, rows []handled) any {
		return struct {
			Head string
			Rows []handled
		}{head, rows}
	},
	"messages": func(base string, all []posthaste.MessageInfo) any {
		return struct {
			Base     string
			Messages []posthaste.MessageInfo
			Select   bool
		}{base, all, false}
	},
	"selectable": func(base string, all []posthaste.MessageInfo) any {
		return struct {
			Base     string
			Messages []posthaste.MessageInfo
			Select   bool
		}{base, all, true}
	},
	"records": func(base string, all []posthaste.Action) any {
		return struct {
			Base    string
			Actions []posthaste.Action
		}{base, all}
	},
}

// link returns an address. Parameters without a value are left out.
func link(base, path string, params ...string) string {
	query := url.Values{}
	for i := 0; i+1 < len(params); i += 2 {
		if params[i+1] != "" {
			query.Add(params[i], params[i+1])
		}
	}
	if len(query) == 0 {
		return base + path
	}
	return base + path + "?" + query.Encode()
}

// number formats a number with commas. It never becomes a float.
func number[T int | int64](n T) string {
	digits := strconv.FormatInt(int64(n), 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

func rate(perSecond float64) string {
	switch {
	case perSecond <= 0:
		return "0"
	case perSecond < 0.1:
		return "<0.1"
	case perSecond < 100:
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	}
	return number(int64(perSecond + 0.5))
}

// duration formats a duration with its two largest units. A negative one, which a clock that was
// set back causes, is shown as none.
func duration(d time.Duration) string {
	switch {
	case d <= 0:
		return "–"
	case d < time.Millisecond:
		return "<1 ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
	}
	units := []struct {
		name string
		size time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}
	for i, u := range units[:3] {
		if d < u.size {
			continue
		}
		text := strconv.FormatInt(int64(d/u.size), 10) + " " + u.name
		if rest := d % u.size / units[i+1].size; rest > 0 {
			text += " " + strconv.FormatInt(int64(rest), 10) + " " + units[i+1].name
		}
		return text
	}
	return "–"
}

// timestamp shows a time in UTC. A script shows it in the viewer's time zone.
func timestamp(t time.Time) template.HTML {
	if t.IsZero() {
		return "–"
	}
	t = t.UTC()
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339Nano) + `">` + t.Format("2006-01-02 15:04:05") + ` UTC</time>`) // digits and letters of the format only
}

func size(n int) string {
	switch {
	case n < 1<<10:
		return strconv.Itoa(n) + " bytes"
	case n < 1<<20:
		return strconv.FormatFloat(float64(n)/(1<<10), 'f', 1, 64) + " KiB"
	}
	return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB"
}

// pretty indents JSON without changing its numbers. It returns other texts as they are, and JSON
// that would become too long: indentation grows with the square of the depth. The characters <, >
// and &, which Go escapes in JSON, are shown as such; templates escape them for HTML.
func pretty(text json.RawMessage) string {
	var out bytes.Buffer
	if indentedSize(text) > 4*maxPretty || json.Indent(&out, text, "", "  ") != nil {
		return string(text)
	}
	return unescaped(out.String())
}

// unescaped returns valid JSON with <, > and & in place of their escapes.
func unescaped(text string) string {
	if !strings.Contains(text, `\u00`) {
		return text
	}
	var out strings.Builder
	for {
		at := strings.IndexByte(text, '\\') // in valid JSON an escape is whole
		if at < 0 {
			out.WriteString(text)
			return out.String()
		}
		out.WriteString(text[:at])
		text = text[at:]
		size := 2
		if text[1] == 'u' {
			size = 6
		}
		switch strings.ToLower(text[:size]) {
		case `\u003c`:
			out.WriteByte('<')
		case `\u003e`:
			out.WriteByte('>')
		case `\u0026`:
			out.WriteByte('&')
		default:
			out.WriteString(text[:size])
		}
		text = text[size:]
	}
}

// indentedSize returns at least the size that JSON has when it is indented by two spaces.
func indentedSize(text []byte) int {
	size, depth, quoted := len(text), 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case quoted:
		case c == '{' || c == '[':
			depth++
			size += 1 + 2*depth
		case c == '}' || c == ']':
			depth = max(0, depth-1)
			size += 1 + 2*depth
		case c == ',':
			size += 1 + 2*depth
		case c == ':':
			size++
		}
	}
	return size
}

// line returns the first line of a text, at most 200 characters of it.
func line(text string) string {
	text, _, more := strings.Cut(text, "\n")
	if runes := []rune(text); len(runes) > 200 {
		text, more = string(runes[:200]), true
	}
	if more {
		text += " …"
	}
	return text
}

// filterText describes the filter of a subscription.
func filterText(f posthaste.Filter) string {
	var parts []string
	if len(f.Kinds) > 0 {
		parts = append(parts, "kind "+strings.Join(f.Kinds, " or "))
	}
	for _, name := range slices.Sorted(maps.Keys(f.Headers)) {
		parts = append(parts, "header "+name+" = "+strings.Join(f.Headers[name], " or "))
	}
	return strings.Join(parts, ", ")
}
