"""What ships as YAML, and its readers. Knows neither engine nor wizard."""
