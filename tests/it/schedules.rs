//! Random schedules.
