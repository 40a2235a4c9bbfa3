package server

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"time"
)

// sessionTime is how long a browser stays signed in.
const sessionTime = 12 * time.Hour

// minSessionKey is the least number of bytes of a configured key.
const minSessionKey = 32

// session is the content of a cookie. The server stores none of it. The token is looked up at
// each request, so a session ends when its token is revoked or expires.
type session struct {
	// Secret is the secret of the token; "" before signing in.
	Secret string `json:"s,omitempty"`
	// Nonce identifies the session. The CSRF token is bound to it.
	Nonce []byte `json:"n"`
	// Ends is when the session ends, in seconds since 1970.
	Ends int64 `json:"e"`
}

// sealer encrypts and authenticates sessions, and derives their CSRF tokens.
type sealer struct {
	aead cipher.AEAD
	csrf []byte
	now  func() time.Time
}

// newSealer returns a sealer with keys that are derived from key, or random ones without it.
func newSealer(key []byte) (*sealer, error) {
	if len(key) == 0 {
		key = make([]byte, minSessionKey)
		_, _ = rand.Read(key) // never fails
	}
	var keys [2][]byte
	for i, use := range [...]string{"posthaste session", "posthaste csrf"} {
		var err error
		if keys[i], err = hkdf.Key(sha256.New, key, nil, use, 32); err != nil {
			return nil, err
		}
	}
	block, err := aes.NewCipher(keys[0])
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return &sealer{aead: aead, csrf: keys[1], now: time.Now}, err
}

// begin returns a new session with the secret of a token, or "" for a browser that is not signed
// in. Its nonce is new, so that nothing of an earlier session is valid in it.
func (s *sealer) begin(secret string) *session {
	nonce := make([]byte, 16)
	_, _ = rand.Read(nonce) // never fails
	return &session{Secret: secret, Nonce: nonce, Ends: s.now().Add(sessionTime).Unix()}
}

func (s *sealer) seal(is *session) string {
	text, _ := json.Marshal(is) // always encodes
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, text, nil))
}

// open returns the session in a cookie; nil if it was not sealed with this key, or has ended.
func (s *sealer) open(cookie string) *session {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(cookie)
	if err != nil {
		return nil
	}
	text, err := s.aead.Open(nil, nil, sealed, nil)
	if err != nil {
		return nil
	}
	var is session
	if json.Unmarshal(text, &is) != nil || s.now().Unix() >= is.Ends {
		return nil
	}
	return &is
}

// token returns the CSRF token of a session. user is the user that a proxy named, or "".
func (s *sealer) token(is *session, user string) string {
	mac := hmac.New(sha256.New, s.csrf)
	_, _ = mac.Write(is.Nonce)
	_, _ = mac.Write([]byte(user))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func sameText(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// cookieName has the port that the browser uses, because browsers send the cookies of one port
// of a host to all others, and servers on two ports would end each other's sessions.
func cookieName(r *http.Request) string {
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		return "posthaste_" + port
	}
	return "posthaste"
}

// formCookie ends the names of cookies of browsers that are not signed in, so that none of these
// replaces a session that a browser did not send.
const formCookie = "_form"

// sessionOf returns the session of a request, or nil.
func (s *sealer) sessionOf(r *http.Request) *session {
	for _, end := range []string{"", formCookie} {
		for _, cookie := range r.CookiesNamed(cookieName(r) + end) {
			if is := s.open(cookie.Value); is != nil && (is.Secret != "") == (end == "") {
				return is
			}
		}
	}
	return nil
}

// setCookie gives the browser a session, or ends the one in which it is signed in if is is nil.
func (s *sealer) setCookie(w http.ResponseWriter, r *http.Request, path string, secure bool, is *session) {
	cookie := &http.Cookie{Name: cookieName(r), Path: path, MaxAge: -1, HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode}
	if is != nil {
		if is.Secret == "" {
			cookie.Name += formCookie
		}
		cookie.Value, cookie.MaxAge = s.seal(is), int(sessionTime/time.Second)
	}
	http.SetCookie(w, cookie)
}
