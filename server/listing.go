package server

import (
	"context"
	"net/http"

	"github.com/posthaste-mq/posthaste"
)

// Page sizes of lists.
const (
	maxListed     = 1000
	defaultListed = 100
)

// listing answers with a complete list.
func listing[T, Shown any](s *Server, all func(context.Context) ([]T, error), show func(T) Shown) answer {
	return bare(func(w http.ResponseWriter, r *http.Request) error {
		ctx, cancel := s.operation(r)
		defer cancel()
		found, err := all(ctx)
		if err != nil {
			return err
		}
		return s.writeJSON(w, http.StatusOK, shown(found, show))
	})
}

// shown converts a list for the response. It is never nil, which JSON would show as null.
func shown[T, Shown any](all []T, show func(T) Shown) []Shown {
	list := make([]Shown, len(all))
	for i, each := range all {
		list[i] = show(each)
	}
	return list
}

// linkNext adds the header Link if there may be a next page. The link is relative, because
// a proxy may serve the API under another path.
func linkNext(w http.ResponseWriter, r *http.Request, next posthaste.MessageID) {
	if next != 0 {
		query := r.URL.Query()
		query.Set("before", next.String())
		w.Header().Set("Link", "<?"+query.Encode()+`>; rel="next"`)
	}
}
