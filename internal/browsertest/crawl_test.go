package browsertest

import (
	"net/url"
	"regexp"
	"strings"
)

// visit opens each page of the dashboard once: the given ones, and those to which they lead. Pages
// that differ only in a name or an id count as one. It calls each with the shape of its address,
// such as queues-x-pause, and returns the shapes.
func (s *shop) visit(b *tab, first []string, each func(shape string)) (seen map[string]bool) {
	b.Helper()
	seen = map[string]bool{}
	left := []string{s.url + "/"}
	for _, path := range first {
		left = append(left, s.url+path)
	}
	for len(left) > 0 {
		at := left[0]
		left = left[1:]
		shape := s.shape(at)
		if seen[shape] {
			continue
		}
		seen[shape] = true
		b.open(at)
		each(shape)
		var links []string
		b.answer(`[...document.querySelectorAll("a[href]:not([download])")].map(a => a.href)`, &links)
		for _, link := range links {
			if strings.HasPrefix(link, s.url+"/") && !strings.Contains(link, "#") {
				left = append(left, link)
			}
		}
	}
	return seen
}

var (
	numbers = regexp.MustCompile(`/[0-9]+`)
	named1  = regexp.MustCompile(`/(queues|schedules|tokens|workers|relays)/[^/]+`)
)

func (s *shop) shape(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	base, _ := url.Parse(s.url)
	path := strings.TrimSuffix(strings.TrimPrefix(u.EscapedPath(), base.Path), "/")
	if path == "" {
		return "overview"
	}
	path = named1.ReplaceAllString(numbers.ReplaceAllString(path, "/1"), "/$1/x")
	return strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", "-")
}
