"""Rules that are the same in every language: budgets, settings, error texts, clocks."""

import pickle
import unittest

import leasekeeper
from leasekeeper import BudgetExhausted, Busy, Holder, LockError, Lost, Metrics, _budget, _clock, _errors, _wire
from leasekeeper._budget import Plan, Wishes
from leasekeeper._settings import Settings
from support import Case

DEFAULTS = Settings.read({})


def plan(remaining, settings=DEFAULTS, **wishes):
    return _budget.plan(Wishes(**wishes), settings, remaining)


class Budgets(unittest.TestCase):
    def test_without_wishes_the_extensions_rule_applies_and_only_the_clients_patience_is_set(self):
        self.assertEqual(plan(60_000), Plan(None, None, 8_500))
        self.assertEqual(plan(3_000), Plan(None, None, 2_800))

    def test_a_reserve_is_kept_of_the_wait(self):
        self.assertEqual(plan(60_000, reserve=8_000).wait, 5_000)
        self.assertEqual(plan(10_000, reserve=8_000).wait, 2_000)
        self.assertEqual(plan(20_000, reserve=8_000, wait=30_000).wait, 12_000)

    def test_a_wait_never_outlasts_the_invocation(self):
        self.assertEqual(plan(10_000, wait=30_000), Plan(9_500, None, 9_800))
        self.assertEqual(plan(400, wait=30_000), Plan(0, None, 200))

    def test_nothing_is_asked_for_when_the_time_is_used_up(self):
        for remaining, wishes in ((0, {}), (200, {}), (200, {"wait": 0}), (3_000, {"reserve": 3_000})):
            with self.assertRaises(BudgetExhausted):
                plan(remaining, **wishes)

    def test_outside_an_invocation_a_wait_outlasts_one_dead_holder(self):
        self.assertEqual(plan(None, lease=30_000), Plan(35_000, 30_000, 38_500))
        self.assertEqual(plan(None), Plan(25_000, None, 28_500))
        self.assertEqual(plan(None, lease=86_400_000).wait, 86_400_000)
        self.assertEqual(plan(None, wait=0), Plan(0, None, 3_500))

    def test_the_patience_follows_the_extensions_settings(self):
        settings = Settings.read({"LEASEKEEPER_WAIT_MS": "50000", "LEASEKEEPER_LEASE_MS": "9000"})
        self.assertEqual(plan(90_000, settings), Plan(None, None, 53_500))
        settings = Settings.read({"LEASEKEEPER_LEASE_MS": "9000"})
        self.assertEqual(plan(None, settings).bound, 17_500)

    def test_giving_back_costs_at_most_a_second_and_leaves_time_for_the_response(self):
        self.assertEqual([_budget.hand_back(ms) for ms in (60_000, 700, 150, None)], [1_000, 500, 0, 11_000])
        self.assertEqual([_budget.answer(ms) for ms in (60_000, 700, 150, None)], [3_000, 500, 0, 3_000])


class SettingsRead(Case):
    def test_nothing_set_is_the_defaults(self):
        self.assertEqual(DEFAULTS, Settings("/tmp/leasekeeper/lock.sock", False, None, None))

    def test_what_is_set_is_taken(self):
        read = Settings.read(
            {
                "LEASEKEEPER_SOCKET": "/run/lock.sock",
                "LEASEKEEPER_STRICT_RELEASE": "true",
                "LEASEKEEPER_WAIT_MS": "1500",
                "LEASEKEEPER_LEASE_MS": "9000",
            }
        )
        self.assertEqual(read, Settings("/run/lock.sock", True, 1_500, 9_000))


class Errors(unittest.TestCase):
    def test_each_code_has_one_class_under_one_base(self):
        for code, kind in _errors.BY_CODE.items():
            self.assertEqual(kind.__name__.lower(), code.replace("_", ""))
            self.assertIs(getattr(leasekeeper, kind.__name__), kind)
            error = _wire.Failure(code, "words").error()
            self.assertEqual((type(error), error.code), (kind, code))
            self.assertIsInstance(error, LockError)
            self.assertTrue(str(error))
        self.assertIs(type(_wire.Failure("unknown", "words").error()), leasekeeper.Unknown)

    def test_they_are_pickled_with_all_they_know(self):
        figures = Metrics(write_requests=3, consumed_write_units=1.5)
        for code in (*_errors.BY_CODE, "unknown"):
            error = _wire.Failure(code, "words", 900, Holder("o"), "stolen", figures).error()
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                same = pickle.loads(pickle.dumps(error, protocol))
                self.assertEqual((type(same), str(same), vars(same)), (type(error), str(error), vars(error)))
                self.assertEqual(same.metrics, figures)

    def test_what_busy_knows_of_the_holder_is_not_in_its_text(self):
        holder = Holder(
            "owner-secret",
            function="arn:secret",
            request_id="id-secret",
            log_stream="stream-secret",
            host="host-secret",
        )
        error = _wire.Failure("busy", "held by arn:secret", 900, holder).error()
        self.assertIsInstance(error, Busy)
        self.assertNotIn("secret", f"{error} {error!r}")
        self.assertEqual((error.holder, error.retry_after), (holder, 0.9))

    def test_a_loss_says_why_and_what_the_extension_said(self):
        for reason in _errors.REASONS:
            error = _wire.Failure("lost", "AccessDenied", reason=reason).error()
            self.assertIsInstance(error, Lost)
            self.assertEqual(error.reason, reason)
            self.assertIn(f"({reason})", str(error))
            self.assertIn("AccessDenied", str(error))

    def test_applications_can_make_them(self):
        for kind in (*_errors.BY_CODE.values(), leasekeeper.Unknown, leasekeeper.ForkedGuard):
            self.assertIsInstance(str(kind()), str)
            self.assertIsInstance(str(kind("words")), str)


class Clocks(unittest.TestCase):
    def test_every_clock_is_read(self):
        first, second = _clock.read(), _clock.read()
        self.assertEqual(len(first), 3)
        self.assertTrue(all(0 <= now - before < 10**9 for before, now in zip(first, second)))
        self.assertTrue(all(reading > 0 for reading in first))


if __name__ == "__main__":
    unittest.main()
