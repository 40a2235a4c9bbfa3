//go:build unix

package server

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/nats"
)

var (
	natsURL      string // while TestOnNATS runs
	natsPrefixes atomic.Int64
)

func init() {
	other := newEngine
	newEngine = func(t *testing.T) posthaste.Store {
		if !strings.HasPrefix(t.Name(), "TestOnNATS/") {
			return other(t)
		}
		e, err := nats.Open(t.Context(), natsURL, nats.WithPrefix(fmt.Sprintf("test%d", natsPrefixes.Add(1))))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		return e
	}
}

// The API behaves on NATS as in memory: these are the tests that call a store, but for those that
// search, pause a kind, or look at a settled message of a queue without a retention.
func TestOnNATS(t *testing.T) {
	s, err := devbroker.StartNATS(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	natsURL = s.URL()
	for name, test := range map[string]func(*testing.T){
		"AtMostOnceIsNotHandedBack":           TestAtMostOnceIsNotHandedBack,
		"ScopesOfEveryRoute":                  TestScopesOfEveryRoute,
		"UnauthorizedStoresNothing":           TestUnauthorizedStoresNothing,
		"DeadLettersByFilter":                 TestDeadLettersByFilter,
		"IdempotencyKey":                      TestIdempotencyKey,
		"IdempotencyKeyOfAMail":               TestIdempotencyKeyOfAMail,
		"WaitingReceiversAreLimited":          TestWaitingReceiversAreLimited,
		"Payloads":                            TestDS9PayloadsOverHTTP,
		"BadInputStoresNothing":               TestBadInputStoresNothing,
		"TooLargeBodies":                      TestTooLargeBodies,
		"PutQueueTwice":                       TestPutQueueTwice,
		"FaultsOfAMail":                       TestFaultsOfAMailAreAllTold,
		"ReceiveInOrder":                      TestDS3ReceiveInOrderOverHTTP,
		"ReceiveWaits":                        TestDS3ReceiveWaitsUntilItsWaitIsOver,
		"ReceiveIsWoken":                      TestDS3ReceiveIsWokenByAMessage,
		"ReceiversShareClaims":                TestReceiversShareClaims,
		"ReceiversOfManySizes":                TestReceiversOfManySizes,
		"ReceiverThatLeaves":                  TestReceiverThatLeavesStrandsNothing,
		"ReceiverThatLeavesWhileNothingComes": TestReceiverThatLeavesWhileNothingComes,
		"AnswerThatIsNotTaken":                TestAnswerThatIsNotTakenIsHandedBack,
		"HandingBack":                         TestHandingBackIsTriedAgain,
		"WhatFallsDue":                        TestReceiveFindsWhatFallsDue,
		"AnswerGivenWhileLeaving":             TestAnswerGivenWhileLeavingIsHandedBack,
		"ReceiversComeAndGo":                  TestReceiversComeAndGo,
		"Schedules":                           TestSchedules,
		"StoredTokens":                        TestStoredTokensOpenAndCloseTheDoor,
		"RequireTokenWithoutAny":              TestRequireTokenWithoutAny,
		"TokensLimitedToQueues":               TestTokensLimitedToQueues,
		"LimitedTokensAndEveryRoute":          TestLimitedTokensAndEveryRoute,
		"WhatIsClaimedMeanwhile":              TestLimitedTokensAndWhatIsClaimedMeanwhile,
		"WaitingEndsWithTheToken":             TestWaitingEndsWithTheToken,
		"AnApplicationReadsWhatItSent":        TestAnApplicationReadsWhatItSent,
		"SchedulesRunNow":                     TestSchedulesRunNow,
	} {
		t.Run(name, test)
	}
}
