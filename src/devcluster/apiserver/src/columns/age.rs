//! Durations as `kubectl get` prints them: `20s`, `3m6s`, `5d`.

use jiff::Timestamp;
use serde_json::Value;

/// Formats a number of seconds with at most two units. Longer durations are coarser.
pub(super) fn duration(seconds: i64) -> String {
    let two = |big: i64, big_unit: char, small: i64, small_unit: char| {
        if small == 0 { format!("{big}{big_unit}") } else { format!("{big}{big_unit}{small}{small_unit}") }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => two(hours / 24, 'd', hours % 24, 'h'),
        _ if hours < 24 * 365 * 2 => format!("{}d", hours / 24),
        _ if hours < 24 * 365 * 8 => two(hours / 24 / 365, 'y', hours / 24 % 365, 'd'),
        _ => format!("{}y", hours / 24 / 365),
    }
}

/// Parses the time in a field.
pub(super) fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// Returns the time since a field's time; `<unknown>` if it has none.
pub(super) fn since(value: &Value, now: Timestamp) -> String {
    time(value).map_or_else(|| "<unknown>".to_owned(), |then| duration(now.as_second() - then.as_second()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_ages_in_the_fewest_telling_units() {
        for (seconds, expected) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (186, "3m6s"),
            (600, "10m"),
            (3 * 3600 + 60, "3h1m"),
            (9 * 3600, "9h"),
            (49 * 3600, "2d1h"),
            (30 * 86400, "30d"),
            (800 * 86400, "2y70d"),
        ] {
            assert_eq!(duration(seconds), expected);
        }
    }
}
