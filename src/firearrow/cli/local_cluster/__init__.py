"""`firearrow up --cluster FORM`: whole clusters on one machine, to try, to break and to mend."""
