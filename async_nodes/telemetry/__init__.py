"""What the product tells about itself: metrics and logs. Knows no step and no storage."""
