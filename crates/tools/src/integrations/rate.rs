//! When a service that takes no more requests may be asked again.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use jiff::fmt::rfc2822;

/// How long to wait where a service does not say (what GitHub asks of its users).
const UNSAID: Duration = Duration::from_secs(60);

/// A response that may say so: its status, its headers, and the service's own words in it.
pub(super) struct Head<'a> {
    pub(super) status: u16,
    pub(super) headers: &'a [(String, String)],
    pub(super) said: Option<&'a str>,
}

impl Head<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.trim())
    }

    /// Now, by the service's clock where it tells it, so that a clock of ours that is wrong does not matter.
    fn now(&self) -> Option<Timestamp> {
        let theirs = self.header("date").and_then(|date| rfc2822::parse(date).ok()).map(|date| date.timestamp());
        theirs.or_else(|| Timestamp::try_from(SystemTime::now()).ok())
    }

    /// What `retry-after` asks for: seconds, or a date.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let value = self.header("retry-after")?;
        if let Ok(seconds) = value.parse::<u64>() {
            return Some(Duration::from_secs(seconds));
        }
        self.until(rfc2822::parse(value).ok()?.timestamp())
    }

    /// When the limit is over: seconds since 1970, or a time as in RFC 3339.
    fn reset(&self) -> Option<Duration> {
        let value = self.header("x-ratelimit-reset")?;
        let at = match value.parse::<i64>() {
            Ok(seconds) => Timestamp::from_second(seconds).ok()?,
            Err(_) => value.parse::<Timestamp>().ok()?,
        };
        self.until(at)
    }

    fn until(&self, at: Timestamp) -> Option<Duration> {
        // What is over by now may be asked at once.
        Some(Duration::try_from(at.duration_since(self.now()?)).unwrap_or(Duration::ZERO))
    }

    /// How long to wait, where this response says that there were too many requests. Nothing was done then.
    pub(super) fn limited(&self) -> Option<Duration> {
        let used_up = self.header("x-ratelimit-remaining") == Some("0");
        let limited = match self.status {
            429 => true,
            // GitHub says it with 403: the hourly limit by the header, those on bursts by `retry-after` or in words.
            403 => used_up || self.header("retry-after").is_some() || self.said.is_some_and(speaks_of_limit),
            _ => false,
        };
        if !limited {
            return None;
        }
        let reset = used_up.then(|| self.reset()).flatten();
        Some(self.retry_after().or(reset).unwrap_or(UNSAID))
    }
}

fn speaks_of_limit(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    said.contains("rate limit") || said.contains("abuse detection")
}

/// The moment `wait` from now, as people and models read it.
pub(super) fn moment(wait: Duration) -> Option<String> {
    let now = Timestamp::try_from(SystemTime::now()).ok()?;
    let at = now.checked_add(jiff::SignedDuration::try_from(wait).ok()?).ok()?;
    // Whole seconds, upwards: asked a moment too early, a service counts it as one more.
    let at = Timestamp::from_second(at.as_second().checked_add(1)?).ok()?;
    Some(at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(status: u16, headers: &[(&str, &str)], said: Option<&str>) -> Option<u64> {
        let headers: Vec<_> = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Head { status, headers: &headers, said }.limited().map(|wait| wait.as_secs())
    }

    #[test]
    fn each_way_of_saying_it_is_read() {
        assert_eq!(head(429, &[("retry-after", "7")], None), Some(7));
        assert_eq!(head(403, &[("retry-after", " 7 ")], None), Some(7));
        assert_eq!(head(429, &[], None), Some(60));
        assert_eq!(head(403, &[], Some("You have exceeded a secondary rate limit.")), Some(60));
        assert_eq!(head(403, &[], Some("Resource not accessible by personal access token")), None);
        assert_eq!(head(403, &[("x-ratelimit-remaining", "12")], Some("no")), None);
        assert_eq!(head(404, &[("x-ratelimit-remaining", "0")], None), None);
        let date = ("date", "Tue, 01 Dec 2026 13:00:00 GMT");
        assert_eq!(head(429, &[date, ("retry-after", "Tue, 01 Dec 2026 13:00:30 GMT")], None), Some(30));
        let used_up = ("x-ratelimit-remaining", "0");
        assert_eq!(head(403, &[date, used_up, ("x-ratelimit-reset", "1796130090")], None), Some(90));
        assert_eq!(head(403, &[date, used_up, ("x-ratelimit-reset", "1796129000")], None), Some(0));
        assert_eq!(head(429, &[date, used_up, ("x-ratelimit-reset", "2026-12-01T13:00:05Z")], None), Some(5));
    }

    #[test]
    fn nonsense_is_no_panic() {
        for value in ["", "soon", "-5", "99999999999999999999999", "18446744073709551615", "1e9", "Tue, 99 Dec 2026 13:00:00 GMT"] {
            assert!(head(429, &[("retry-after", value)], None).is_some(), "{value}");
            let reset = ("x-ratelimit-reset", value);
            assert!(head(403, &[("x-ratelimit-remaining", "0"), reset, ("date", value)], None).is_some(), "{value}");
        }
        assert_eq!(moment(Duration::MAX), None);
        assert!(moment(Duration::from_secs(u64::MAX)).is_none());
        assert!(moment(Duration::from_secs(5)).is_some_and(|at| at.ends_with('Z')));
    }
}
