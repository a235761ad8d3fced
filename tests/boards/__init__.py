"""Make the dashboards and the pages about alerts, and check both."""
